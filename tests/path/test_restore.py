"""A database restored from an older backup: calls that may have been made since are not made again blindly."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest

from hookledger import Event, Happened, Op, Refused, State
from hookledger.effects.restore_gap import Gap
from hookledger.errors import Unavailable
from hookledger.operate import restore
from hookledger.operate.audit import by
from hookledger.operate.effects import resolve
from hookledger.operate.replay import replay
from hookledger.states import EffectState
from tests.asgi_client import Site
from tests.path.conftest import SECRET, MakeSite
from tests.path.remote import deliver, effects, event, finish, outcomes

KINDS = pytest.mark.parametrize("kind", ["call", "later"])


class Shop:
    """One effect that is performed at once, and says so."""

    def __init__(
        self,
        site: Site,
        kind: str,
        repeat: Literal["never", "safe"] = "never",
        check: Any = None,
        answers: list[Exception] | None = None,
    ) -> None:
        """`answers`: what the next calls raise."""
        self.site = site
        self.performed: list[str] = []
        self.answers = answers or []

        @site.inbox.effect(repeat=repeat, grace="0s")
        async def charge(op: Op) -> str:
            self.performed.append(op.key)
            if self.answers:
                raise self.answers.pop(0)
            return "charged"

        if check is not None:

            @charge.check
            async def look(op: Op) -> Happened | bool | None:
                found: Happened | bool | None = check
                return found

        @site.inbox.sources["stripe"].on("*")
        async def handle(event: Event) -> None:
            await (event.call(charge, event.key) if kind == "call" else event.later(charge, event.key))

    async def restore(self) -> None:
        async with self.site.inbox.opened() as store:
            self.site.inbox.clock.offset += 3600  # no worker of before the backup is alive
            context = self.site.inbox.context(store)
            await restore.after_restore(context, by("ada", "the disk died"), datetime.now(UTC) - timedelta(hours=3))

    async def close(self) -> None:
        async with self.site.inbox.opened() as store:
            await restore.close_gap(self.site.inbox.context(store), by("ada", "reconciled"))

    async def resolve(self, ident: str, decision: Any) -> None:
        known = (await effects(self.site, ident))["charge"].effect
        async with self.site.inbox.opened() as store:
            result = "charged" if decision == "happened" else None
            await resolve(self.site.inbox.context(store), by("ada", "asked the bank"), known, decision, result)


@pytest.fixture
async def site(site_on: MakeSite, database_url: str) -> Site:
    made = await site_on(
        database_url, {"work": {"poll": "10ms", "retry": {"initial_delay": "1ms", "max_delay": "1ms"}}}
    )
    made.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    return made


@KINDS
@pytest.mark.parametrize("decision", ["happened", "did_not_happen"])
async def test_an_effect_that_is_never_repeated_waits_for_an_operator(site: Site, kind: str, decision: str) -> None:
    shop = Shop(site, kind)
    await shop.restore()
    await deliver(site, "evt_1", "t")
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    state = State.NEEDS_REVIEW if kind == "call" else State.PROCESSED
    assert (row.state, row.attention, known.effect.state) == (state, True, EffectState.UNKNOWN)
    assert "between the backup of" in (known.effect.error or "")
    assert (shop.performed, outcomes(known)) == ([], ["unknown"])
    await shop.resolve("evt_1", decision)
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.state, row.attention, known.effect.state) == (State.PROCESSED, False, EffectState.DONE)
    assert len(shop.performed) == (0 if decision == "happened" else 1)


@KINDS
@pytest.mark.parametrize("denied", [False, True], ids=["refused", "decided_then_refused"])
async def test_refused_before_the_backup(site: Site, kind: str, denied: bool) -> None:
    """It may have been tried again in the gap, and not been refused: a refusal that is on record proves nothing."""
    shop = Shop(site, kind, answers=[ConnectionResetError("no answer")] * denied + [Refused("429", after=1.0)])
    await deliver(site, "evt_1", "t")
    await site.work()
    if denied:
        await shop.resolve("evt_1", "did_not_happen")
        await site.work(later=1.0)
    known = (await effects(site, "evt_1"))["charge"]
    assert outcomes(known)[-1] == "refused"
    before = len(shop.performed)
    await shop.restore()
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.attention, known.effect.state, len(shop.performed)) == (True, EffectState.UNKNOWN, before)
    shop.answers = [Refused("429 again", after=1.0)]
    await shop.resolve("evt_1", "did_not_happen")
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.state, row.attention, known.effect.state) == (State.PROCESSED, False, EffectState.DONE)
    assert len(shop.performed) == before + 2, "what is decided since the restore is not asked again after a refusal"


@KINDS
async def test_an_outage_does_not_let_a_call_through(site: Site, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the gap cannot be asked for, nothing is sent; and the next call is asked for again."""
    shop = Shop(site, kind)
    await shop.restore()
    asked = 0

    class Restores:
        def __init__(self, real: Any) -> None:
            self._real = real

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        async def gap(self) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise Unavailable("a short outage")
            return await self._real.gap()

    def gap(restores: Any) -> Gap:
        asking: Any = Restores(restores)
        return Gap(asking)

    monkeypatch.setattr("hookledger.work.parts.Gap", gap)
    await deliver(site, "evt_1", "t")
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.attention, known.effect.state) == (True, EffectState.UNKNOWN)
    assert (shop.performed, outcomes(known)) == ([], ["refused", "unknown"])


@KINDS
async def test_a_deliberate_repetition_is_a_decision(site: Site, kind: str) -> None:
    shop = Shop(site, kind)
    await deliver(site, "evt_1", "t")
    await finish(site)
    await shop.restore()
    shop.answers = [Refused("429", after=1.0)]
    row = await event(site, "evt_1")
    async with site.inbox.opened() as store:
        await replay.replay(site.inbox.context(store), by("ada", "the bank lost it"), row, ["charge"])
    await finish(site)
    assert len(shop.performed) == 3
    assert (await event(site, "evt_1")).state is State.PROCESSED


@KINDS
@pytest.mark.parametrize("found", [Happened("charged"), False])
async def test_its_check_decides_where_it_has_one(site: Site, kind: str, found: Happened | bool) -> None:
    shop = Shop(site, kind, check=found)
    await shop.restore()
    await deliver(site, "evt_1", "t")
    await finish(site)
    row, known = await event(site, "evt_1"), (await effects(site, "evt_1"))["charge"]
    assert (row.state, row.attention, known.effect.state) == (State.PROCESSED, False, EffectState.DONE)
    assert len(shop.performed) == (0 if found else 1)


@KINDS
async def test_effects_that_may_be_repeated_are_performed(site: Site, kind: str) -> None:
    shop = Shop(site, kind, "safe")
    await shop.restore()
    await deliver(site, "evt_1", "t")
    await finish(site)
    assert len(shop.performed) == 1
    assert (await event(site, "evt_1")).state is State.PROCESSED


@KINDS
async def test_after_the_gap_is_closed_nothing_waits(site: Site, kind: str) -> None:
    shop = Shop(site, kind)
    await shop.restore()
    await shop.close()
    await deliver(site, "evt_1", "t")
    await finish(site)
    assert len(shop.performed) == 1
    assert (await event(site, "evt_1")).state is State.PROCESSED


@pytest.mark.parametrize("repeat", ["never", "safe"])
async def test_from_backup_to_the_end(site_on: MakeSite, sqlite_url: str, tmp_path: Path, repeat: Any) -> None:
    site = await site_on(sqlite_url)
    site.inbox.source("stripe", provider="stripe", secrets=[SECRET])
    shop = Shop(site, "later", repeat)
    await deliver(site, "evt_1", "t")
    await site.inbox.asgi.stop()
    backup = tmp_path / "backup.db"
    live = apsw.Connection(str(tmp_path / "inbox.db"))
    live.execute("VACUUM INTO ?", (str(backup),))
    live.close()
    await finish(site)
    assert len(shop.performed) == 1, "of which the backup knows nothing"
    for left in tmp_path.glob("inbox.db*"):
        left.unlink()
    backup.rename(tmp_path / "inbox.db")
    await shop.restore()
    await finish(site)
    known = (await effects(site, "evt_1"))["charge"].effect
    if repeat == "never":
        assert (known.state, len(shop.performed)) == (EffectState.UNKNOWN, 1)
    else:
        assert (known.state, len(shop.performed)) == (EffectState.DONE, 2)
        assert len(set(shop.performed)) == 1, "under the key that the remote knows"


async def test_the_command(site: Site, tmp_path: Path) -> None:
    def doctor(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hookledger", "doctor", "--database", site.inbox.database or "", *options]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)

    for options in (["--after-restore", "--reason", "x"], ["--done"], ["--after-restore", "--backup-at", "3h"]):
        assert doctor(*options).returncode == 2
    begun = doctor("--after-restore", "--backup-at", "3h", "--reason", "the disk died")
    assert "0 effects that were planned or started became unknown; the gap is open" in begun.stderr, begun.stderr
    assert (begun.returncode, "restored on" in begun.stdout) == (11, True)
    closed = doctor("--after-restore", "--done", "--reason", "reconciled")
    assert "The gap is closed" in closed.stderr
    assert closed.returncode == 0, closed.stdout
