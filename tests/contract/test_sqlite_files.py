"""The files of SQLite: who may read them, and which ones a process has open."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hookledger.clock import Clock
from hookledger.errors import Unavailable
from hookledger.model import Kind
from hookledger.store.connect import connect
from tests.builders import SOURCE, TYPE, WORKER, delivered, record, way_out


@pytest.fixture
def loose_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


@pytest.mark.usefixtures("loose_umask")
async def test_only_the_owner_may_read_what_is_created(tmp_path: Path) -> None:
    store = connect(f"sqlite:///{tmp_path}/inbox.db", clock=Clock())
    await store.open()
    try:
        await store.migrate()
        modes = {file.name: stat.filemode(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        await store.close()
    assert modes == dict.fromkeys(("inbox.db", "inbox.db-wal", "inbox.db-shm"), "-rw-------")


@pytest.mark.usefixtures("loose_umask")
async def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    """Whoever made it may have meant a group."""
    path = tmp_path / "inbox.db"
    path.touch(0o660)
    store = connect(f"sqlite:///{path}", clock=Clock())
    await store.open()
    try:
        await store.migrate()
        modes = {stat.filemode(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        await store.close()
    assert modes == {"-rw-rw----"}


async def test_the_folder_of_the_process_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = connect("sqlite:///inbox.db", clock=Clock())
    await store.open()
    try:
        await store.migrate()
        monkeypatch.chdir("/")
        await record(store, delivered("evt_1"))
        assert (await store.health()).problem is None
    finally:
        await store.close()


async def test_a_link_that_leads_elsewhere_is_noticed(tmp_path: Path) -> None:
    """After a restart the other file would be opened."""
    link, real, other = tmp_path / "inbox.db", tmp_path / "real.db", tmp_path / "other.db"
    link.symlink_to(real)
    store = connect(f"sqlite:///{link}", clock=Clock())
    await store.open()
    try:
        await store.migrate()
        await record(store, delivered("evt_1"))
        other.write_bytes(real.read_bytes())
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(Unavailable, match="was deleted, renamed or replaced"):
            await record(store, delivered("evt_2"))
    finally:
        await store.close()


UPKEEP = {
    "vacuum": "c.execute('VACUUM')",
    "checkpoint": "assert c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()[0] == 0",
    "vacuum_into": "c.execute('VACUUM INTO ?', (sys.argv[1] + '.copy',))",
    "backup": "c.backup(sqlite3.connect(sys.argv[1] + '.copy'))",
    "optimize": "c.execute('PRAGMA optimize')",
}


@pytest.mark.parametrize("deed", UPKEEP.values(), ids=UPKEEP)
async def test_an_operators_own_maintenance_is_no_loss(tmp_path: Path, deed: str) -> None:
    """By another process, as `sqlite3` at a shell would be: the files stay, whatever is done to their content."""
    path = tmp_path / "inbox.db"
    store = connect(f"sqlite:///{path}", clock=Clock())
    await store.open()
    try:
        await store.migrate()
        for n in range(3):
            await record(store, *(delivered(f"evt_{n}_{i}") for i in range(50)))
            opened = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)"
            program = f"{opened}; {deed}; c.close()"
            subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=60)
            (tmp_path / "inbox.db.copy").unlink(missing_ok=True)
        await record(store, delivered("evt_last"))
        assert (await store.health()).problem is None
    finally:
        await store.close()
    again = connect(f"sqlite:///{path}", clock=Clock())
    await again.open()
    try:
        assert (await again.counts()) == {"pending": 151}
    finally:
        await again.close()


async def test_a_handler_does_not_commit_into_a_replaced_file(tmp_path: Path) -> None:
    """Its outcome would be gone after a restart, and its event pending: whoever asks is told that it is not kept."""
    path, other = tmp_path / "inbox.db", tmp_path / "other.db"
    fresh = connect(f"sqlite:///{other}", clock=Clock())
    await fresh.open()
    await fresh.migrate()
    await fresh.close()
    store = connect(f"sqlite:///{path}", clock=Clock())
    await store.open(handlers=1)
    try:
        await store.migrate()
        await record(store, delivered("evt_1"))
        [owner] = await store.claim(WORKER, [Kind(SOURCE, TYPE)], 1, 60.0)
        transaction = store.transaction()
        await transaction.tx.execute("CREATE TABLE mine (what TEXT)")
        other.replace(path)
        with pytest.raises(Unavailable, match="was deleted, renamed or replaced"):
            await transaction.commit([way_out(owner, "complete")])
        transaction = store.transaction()
        with pytest.raises(Unavailable, match="was deleted, renamed or replaced"):
            await transaction.tx.execute("CREATE TABLE others (what TEXT)")
        await transaction.rollback()
    finally:
        await store.close()
