"""Tickets are unique and increase, across processes that are killed and a database that crashes."""

from pathlib import Path

from tests.crash.conftest import Install
from tests.crash.processes import Installation, Process, eventually
from tests.services.postgres import Postgres

ENOUGH = 20
"""Tickets that a process must have drawn before the next thing happens to it."""


class Drawers:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._files: list[Path] = []

    def start(self) -> tuple[Process, Path]:
        file = self._installation.folder / f"tickets-{len(self._files)}"
        file.touch()
        self._files.append(file)
        return self._installation._start(
            "draw", "tests.crash.drawer", self._installation.database.url, str(file)
        ), file

    def drawn(self) -> list[list[int]]:
        """By process, in the order in which each drew them; not a line that was cut by the kill."""
        return [noted(file) for file in self._files]

    def highest(self) -> int:
        return max((ticket for tickets in self.drawn() for ticket in tickets), default=0)

    def check(self) -> None:
        for tickets in self.drawn():
            assert tickets == sorted(set(tickets))
        every = [ticket for tickets in self.drawn() for ticket in tickets]
        assert len(every) == len(set(every)), "a ticket was given out twice"


def noted(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().rpartition("\n")[0].split("\n") if line]


def draws(file: Path, more_than: int = 0) -> None:
    eventually(lambda: len(noted(file)) > more_than + ENOUGH, "tickets are drawn")


def test_tickets_increase_though_processes_are_killed(installation: Installation, rounds: int) -> None:
    drawers = Drawers(installation)
    running = [drawers.start() for _ in range(3)]
    for number in range(3 * rounds + 3):
        for _, file in running:
            draws(file)
        process, _ = running[number % 3]
        process.kill()
        before = drawers.highest()
        running[number % 3] = drawers.start()
        draws(running[number % 3][1])
        assert noted(running[number % 3][1])[0] > before
    drawers.check()


def test_tickets_increase_though_the_database_crashes(
    install: Install, postgres_server: Postgres, rounds: int
) -> None:
    """PostgreSQL, whose default here is to lose the last commits in a crash. SQLite has no process that could crash
    alone; that it syncs every commit stands in test_durability."""
    url = postgres_server.create_database("tickets")
    postgres_server.execute('ALTER DATABASE "tickets" SET synchronous_commit = off')
    drawers = Drawers(install(url))
    running = [drawers.start() for _ in range(2)]
    for _ in range(rounds + 1):
        for _, file in running:
            draws(file, len(noted(file)))
        postgres_server.stop("immediate")
        before, counts = drawers.highest(), [len(noted(file)) for _, file in running]
        postgres_server.start()
        for (_, file), count in zip(running, counts, strict=True):
            draws(file, count)
            assert noted(file)[count] > before
    drawers.check()
