"""`hookledger copy` killed before and after each of its commits: at no point can both sides be written.

Afterwards it is resumed, or abandoned; a redelivered event is a duplicate, and what was done is not done again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest

from hookledger.cli import exits
from hookledger.clock import Clock
from hookledger.ledger import Started
from hookledger.states import DeliveryOutcome, EffectState
from hookledger.store import out_of_range
from hookledger.store.connect import connect
from hookledger.store.ops.copy import CopyState
from hookledger.store.protocol import Store
from tests.builders import WORKER, claimed, record
from tests.crash.killed_at import COMMITS, STEPS
from tests.crash.processes import ROOT
from tests.inboxes import KEPT, PRUNED, arrived, fill
from tests.ledger import intent
from tests.services.forked import Forked
from tests.services.postgres import Databases

T = TypeVar("T")

FIRST, LAST = 4, 4
"""Commits at which it is killed in scripts/test, and one among the rows; scripts/soak comes to all of them."""
KILLED = -9
KEEP = """DO $$ DECLARE name text; BEGIN
    CREATE SCHEMA model;
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'hookledger'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('CREATE TABLE model.%1$I AS TABLE hookledger.%1$I', name);
    END LOOP;
END $$"""
FILL_AGAIN = """DO $$ DECLARE name text; BEGIN
    DROP FUNCTION IF EXISTS hookledger.forbids_writes() CASCADE;
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'model'::regnamespace LOOP
        EXECUTE format('DELETE FROM hookledger.%I', name);
        EXECUTE format('INSERT INTO hookledger.%1$I SELECT * FROM model.%1$I', name);
    END LOOP;
END $$"""


class Scene:
    """A filled inbox, which each round has for its source; and commands that are killed."""

    def __init__(self, folder: Path, url: str, kind: str) -> None:
        """`url`: of a PostgreSQL database; `kind`: of the source."""
        self._folder = folder
        self._url = url
        self._postgres = kind == "postgres"
        self._model = url if self._postgres else self._file()
        self.of(self._model, _filled)
        if self._postgres:
            Databases(url).execute(KEEP)

    def _file(self) -> str:
        return f"sqlite:///{self._folder}/{uuid4().hex}.db"

    def fresh(self) -> tuple[str, str]:
        """The URLs of a filled source, and of an empty target of the other kind."""
        if self._postgres:  # to make and to drop a database takes longer than to copy an inbox
            Databases(self._url).execute(FILL_AGAIN)
            return self._url, self._file()
        Databases(self._url).execute("DROP SCHEMA IF EXISTS hookledger CASCADE")
        source = self._file()
        for suffix in ("", "-wal"):
            there = Path(self._model.removeprefix("sqlite:///") + suffix)
            if there.exists():
                shutil.copyfile(there, source.removeprefix("sqlite:///") + suffix)
        return source, self._url

    def of(self, url: str, work: Callable[[Store], Awaitable[T]]) -> T:
        """What a store of this process says."""

        async def run() -> T:
            store = connect(url, clock=Clock())
            await store.open(handlers=1)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def copy(self, source: str, target: str, *options: str, kill_at: int = 0) -> int:
        """The exit code."""
        log = self._folder / "log"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")},
            "HOOKLEDGER_DATABASE": source,
            STEPS: str(self._folder / "steps"),
            COMMITS: "1",
        }
        options = ("--yes", "--actor", "ada", "--reason", "a bigger machine", *options)
        arguments = [str(kill_at), "copy", "--to", target, *options]
        process = Forked("tests.crash.killed_at", arguments, cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            return process.wait(120)
        finally:
            process.kill()

    def steps(self, *, after: bool) -> list[int]:
        """Of the last command that ran to its end, the moments after or before each commit. Before the next commit is
        all that there is after the last one, so either of them comes to every durable state."""
        every = range(1 + after, int((self._folder / "steps").read_text()) + 1, 2)
        if os.environ.get("HOOKLEDGER_SOAK") == "1":
            return list(every)
        return [*every[:FIRST], every[len(every) // 2], *every[-LAST:]]

    def succeeds(self, source: str, target: str, *options: str) -> None:
        assert self.copy(source, target, *options) == 0, (self._folder / "log").read_text()[-2000:]

    # ── what is there ──

    def writable(self, source: str, target: str) -> tuple[bool, bool]:
        """Whether each can be; a target that is empty and not a part of the copy yet does not count."""
        (one, _), (other, known) = self._look(source), self._look(target)
        return one, other and known is not None

    def state(self, url: str) -> CopyState | None:
        return self._look(url)[1]

    def _look(self, url: str) -> tuple[bool, CopyState | None]:
        async def look(store: Store) -> tuple[bool, CopyState | None]:
            health = await store.health()
            known = None if health.problem == out_of_range(0) else await store.copies.state()
            return health.writable, None if known is None else known.state

        return self.of(url, look)

    def check_complete(self, source: str, target: str) -> None:
        assert self.writable(source, target) == (False, True)
        assert (self.state(source), self.state(target)) == (CopyState.MOVED, CopyState.COMPLETE)
        ours, theirs = (self.of(url, lambda store: store.consistency.report()) for url in (source, target))
        assert ours == theirs
        assert ours.imbalances == ()
        ours_rows, theirs_rows = (self.of(url, lambda store: store.copies.totals()) for url in (source, target))
        assert theirs_rows == {**ours_rows, "actions": ours_rows["actions"] + 1}
        self.of(target, _nothing_twice)

    def check_abandoned(self, source: str, target: str) -> None:
        assert self.writable(source, target) == (True, False)
        assert self.of(source, lambda store: store.consistency.report()).imbalances == ()
        if self.state(target) is not None:  # else it was never a part of the copy
            assert self.state(target) is CopyState.ABANDONED
            assert self.copy(source, target) == exits.NOT_ALLOWED
            assert self.writable(source, target) == (True, False)
        self.of(source, _nothing_twice)


async def _filled(store: Store) -> None:
    await store.migrate()
    clock = store._clock  # type: ignore[attr-defined]
    await fill(store, clock)


async def _nothing_twice(store: Store) -> None:
    again = await record(store, *(arrived(key.format(n)) for key in (KEPT, PRUNED) for n in range(4)))
    assert {one.outcome for one in again} == {DeliveryOutcome.DUPLICATE}
    owner = await claimed(store, "new", type="t.new")
    intents = [intent(owner, key.format(0), "charge") for key in (KEPT, PRUNED)]
    for known in await store.ledger.start(intents, WORKER):
        assert known is not None
        assert not isinstance(known, Started), "it would be called again"
        assert known.state is EffectState.DONE


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Scene]:
    """The parameter is the kind of the source; the target is of the other."""
    yield Scene(tmp_path, postgres_url, request.param)
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_copy_is_killed_at_every_commit_and_resumed(scene: Scene) -> None:
    source, target = scene.fresh()
    scene.succeeds(source, target)
    scene.check_complete(source, target)
    seen = set()
    for step in scene.steps(after=False):
        source, target = scene.fresh()
        assert scene.copy(source, target, kill_at=step) == KILLED
        known, writable = scene.state(source), scene.writable(source, target)
        assert writable != (True, True), step
        assert writable[0] == (known is None), step
        seen.add(known)
        scene.succeeds(source, target)
        scene.check_complete(source, target)
    assert seen == {None, CopyState.MOVING, CopyState.MOVED}


def test_copy_is_killed_at_every_commit_and_abandoned(scene: Scene) -> None:
    source, target = scene.fresh()
    scene.succeeds(source, target)
    for step in scene.steps(after=True):
        source, target = scene.fresh()
        assert scene.copy(source, target, kill_at=step) == KILLED
        assert scene.writable(source, target) != (True, True), step
        before = scene.state(source)
        code = scene.copy(source, target, "--abandon")
        assert code == (0 if before is CopyState.MOVING else exits.NOT_ALLOWED), step
        if before is CopyState.MOVED:  # there is no way back
            scene.succeeds(source, target)
            scene.check_complete(source, target)
        else:
            scene.check_abandoned(source, target)


def test_abandon_is_killed_at_every_commit(scene: Scene) -> None:
    source, target = scene.fresh()
    scene.succeeds(source, target)
    middle = scene.steps(after=True)[-1] // 2
    seen = []
    for step in itertools.count(1, 2):
        source, target = scene.fresh()
        assert scene.copy(source, target, kill_at=middle) == KILLED
        code = scene.copy(source, target, "--abandon", kill_at=step)
        known, writable = scene.state(source), scene.writable(source, target)
        if code == 0:
            break
        assert code == KILLED
        seen.append((known, scene.state(target)))
        assert writable == (False, False), "its last commit opens the source"
        if known is CopyState.ABANDONING:
            assert scene.copy(source, target) == exits.NOT_ALLOWED, "it cannot be resumed"
        scene.succeeds(source, target, "--abandon")
        scene.check_abandoned(source, target)
    moving, abandoning, incomplete = CopyState.MOVING, CopyState.ABANDONING, CopyState.INCOMPLETE
    assert list(dict.fromkeys(seen)) == [
        (moving, incomplete),
        (abandoning, incomplete),
        (abandoning, CopyState.ABANDONED),
    ]
    assert writable == (True, False)
    scene.check_abandoned(source, target)
