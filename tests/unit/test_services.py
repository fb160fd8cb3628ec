"""The services are what the other tests trust: real, durable, and gone afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from tests.services.postgres import Databases, Postgres

ROOT = Path(__file__).parents[2]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def test_the_shared_server_is_current_and_durable(postgres: Databases) -> None:
    assert int(postgres.fetchval("SHOW server_version_num")) >= 15_00_00
    assert postgres.fetchval("SHOW fsync") == "on"


def test_our_own_server_does_not_run_as_root(postgres_server: Postgres) -> None:
    assert (postgres_server.data / "postmaster.pid").stat().st_uid != 0
    assert postgres_server.fetchval("SHOW fsync") == "on"
    assert postgres_server.fetchval("SHOW synchronous_commit") == "on"
    assert postgres_server.fetchval("SHOW max_connections") == "200"


async def test_a_database_is_fresh_and_can_be_used_from_a_running_loop(postgres: Databases) -> None:
    url = postgres.create_database("hookledger_test_by_hand")
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    postgres.drop_database("hookledger_test_by_hand")  # with its connection still open
    with pytest.raises(asyncpg.PostgresError):
        await connection.fetchval("SELECT 1")
    connection.terminate()


def test_each_store_has_a_url(database_url: str) -> None:
    assert database_url.startswith(("sqlite:///", "postgresql://", "postgres://"))


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_committed_data_survives_every_way_to_end_the_server(postgres_server: Postgres, how: str) -> None:
    postgres_server.execute("CREATE TABLE kept AS SELECT 1 AS n")
    url, first = postgres_server.url(), postgres_server.pid
    assert first is not None
    if how == "kill":
        postgres_server.kill()
    else:
        postgres_server.stop("fast" if how == "fast" else "immediate")
    assert not alive(first)
    postgres_server.start()
    assert postgres_server.url() == url
    assert postgres_server.pid != first
    assert postgres_server.fetchval("SELECT n FROM kept") == 1


def test_restart_gives_a_new_process_on_the_same_port(postgres_server: Postgres) -> None:
    before = (postgres_server.pid, postgres_server.port)
    postgres_server.restart()
    assert postgres_server.pid != before[0]
    assert postgres_server.port == before[1]
    assert postgres_server.fetchval("SELECT 1") == 1


def test_close_leaves_neither_process_nor_files() -> None:
    with Postgres() as server:
        pid, directory = server.pid, server.socket_directory
        assert pid is not None
        assert alive(pid)
    assert not alive(pid)
    assert not directory.exists()


def test_the_server_ends_with_a_killed_owner() -> None:
    program = (
        "from tests.services.postgres import Postgres; server = Postgres(); server.start(); "
        "print(server.pid, server.socket_directory, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert alive(int(pid))
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (alive(int(pid)) or Path(directory).exists()):
        time.sleep(0.02)
    assert not alive(int(pid))
    assert not Path(directory).exists()
