"""Health checks and metrics of real processes, through outages, kills and floods."""

import http.client
import os
import random
import re
import socket
import string
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tests.crash.conftest import Install
from tests.crash.processes import Installation, event, events, eventually
from tests.crash.test_answers import answering_of
from tests.services.ports import free_port
from tests.services.postgres import Postgres
from tests.unit.test_metrics import values

Labels = dict[str, str]


def asked(port: int, path: str) -> tuple[int, str]:
    """Status and body; 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of a metric over all series with these labels."""
    return sum(
        value
        for (found, have), value in values(text).items()
        if found == f"hookledger_{name}" and labels.items() <= dict(have).items()
    )


def series(text: str) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return set(values(text))


def monitored(installation: Installation, **settings: str) -> None:
    inner = ", ".join(f'{name} = "{value}"' for name, value in settings.items())
    installation.set(f"monitor = {{ {inner} }}")


def test_an_outage_of_the_database_is_no_reason_to_restart_a_worker(
    install: Install, postgres_server: Postgres
) -> None:
    installation = install(postgres_server.create_database("monitored"))
    port = free_port()
    worker = installation.work("--monitor", f"127.0.0.1:{port}")
    eventually(lambda: asked(port, "/readyz")[0] == 200, "the worker is registered")
    assert asked(port, "/healthz")[0] == 200
    postgres_server.stop("immediate")
    eventually(lambda: asked(port, "/readyz")[0] == 503, "it cannot work")
    for _ in range(20):
        assert asked(port, "/healthz")[0] == 200, "it is alive, whatever the database does"
        assert asked(port, "/metrics")[0] == 200
        time.sleep(0.05)
    postgres_server.start()
    eventually(lambda: asked(port, "/readyz")[0] == 200, "it works again")
    assert worker.running
    assert re.search(r"this worker stops within \d+ s", worker.log)


def test_a_worker_whose_loop_is_blocked_is_not_healthy(install: Install, database_url: str, tmp_path: Path) -> None:
    installation = install(database_url)
    monitored(installation, blocked_after="1s")
    port, announced, go = free_port(), tmp_path / "announced", tmp_path / "go"
    installation.receive()
    installation.work("--monitor", f"127.0.0.1:{port}")
    installation.send(event("evt_hog", "hog", announce=str(announced), go=str(go)))
    eventually(announced.exists, "the loop is blocked")
    eventually(lambda: "the event loop has not run" in asked(port, "/healthz")[1], "it says so")
    assert asked(port, "/healthz")[0] == 503
    assert asked(port, "/readyz")[0] == 503
    go.touch()
    eventually(lambda: asked(port, "/healthz")[0] == 200, "it runs again")
    installation.drain()


def test_counts_are_those_of_the_database(install: Install, database_url: str) -> None:
    installation = install(database_url)
    receiver_port, worker_port = free_port(), free_port()
    installation.environment["HOOKLEDGER_MONITOR"] = f"127.0.0.1:{receiver_port}"
    receiver = installation.receive()
    installation.environment["HOOKLEDGER_MONITOR"] = f"127.0.0.1:{worker_port}"
    worker = installation.work()
    load = events(60, "order", "plain", "fail.permanent")
    installation.send(*load, times=2)
    installation.drain()
    received, worked = asked(receiver_port, "/metrics")[1], asked(worker_port, "/metrics")[1]
    deliveries = Counter(
        {
            row["outcome"]: row["n"]
            for row in installation.database.rows("SELECT outcome, count(*) AS n FROM {h}deliveries GROUP BY outcome")
        }
    )
    for outcome in ("accepted", "duplicate"):
        assert metric(received, "deliveries_total", outcome=outcome) == deliveries[outcome] > 0
    assert metric(received, "requests_total") == sum(deliveries.values())
    assert metric(received, "ack_seconds_count") == sum(deliveries.values())
    assert metric(received, "commit_deliveries_sum") == sum(deliveries.values())
    assert metric(received, "up", process="receive") == 1
    assert metric(received, "database_up") == 1, "its operator's listener reads the database"
    eventually(
        lambda: metric(asked(worker_port, "/metrics")[1], "attempts_total") >= 60, "the last attempt is counted"
    )
    attempts = asked(worker_port, "/metrics")[1]
    assert metric(attempts, "attempts_total", outcome="processed") == 40
    assert metric(attempts, "attempts_total", outcome="failed", handler="tests.crash.app.fail_permanent") == 20
    assert metric(attempts, "rollbacks_total", cause="decision") == 20
    assert metric(attempts, "settle_delay_seconds_count") == 60
    assert metric(worked, "handler_slots") == 8
    assert metric(worked, "heartbeat_timestamp_seconds") > 0
    assert metric(worked, "database_up") == 0, "a worker does not read it"
    for process in (receiver, worker):
        process.terminate()
        process.exit_code()
    written = installation.database.rows("SELECT what, sum(n) AS n FROM {h}rates GROUP BY what")
    rates = Counter({row["what"]: int(row["n"]) for row in written})
    assert (rates["delivery.accepted"], rates["delivery.duplicate"]) == (60, deliveries["duplicate"])
    assert (rates["attempt.processed"], rates["attempt.failed"]) == (40, 20)
    assert sum(n for what, n in rates.items() if what.startswith("ack.")) == sum(deliveries.values())
    assert sum(n for what, n in rates.items() if what.startswith("delay.")) == 60


def test_serve_has_the_metrics_of_all_and_tells_a_silent_one(installation: Installation) -> None:
    installation.give_token()
    supervisor = installation.serve()

    def text() -> str:
        status, body = asked(installation.operator_port, "/metrics")
        return body if status == 200 else ""

    def up() -> dict[str, float]:
        found = values(text())
        return {dict(labels)["process"]: value for (name, labels), value in found.items() if name == "hookledger_up"}

    eventually(lambda: up() == {"receive": 1.0, "work": 1.0, "api": 1.0}, "every process answers")
    installation.send(*events(30, "order"), times=2)
    installation.drain()
    eventually(lambda: metric(text(), "attempts_total", outcome="processed", process="work") == 30, "all is counted")
    assert metric(text(), "deliveries_total", outcome="accepted", process="receive") == 30
    assert metric(text(), "database_up") == 1
    for child in supervisor.children():
        if "work" in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
            os.kill(child, 19)  # frozen: it neither answers nor ends
            eventually(lambda: up()["work"] == 0.0, "the silent one is told")
            os.kill(child, 9)
    eventually(lambda: up() == {"receive": 1.0, "work": 1.0, "api": 1.0}, "its successor has its socket")


def rss(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


# proves R53
def test_strangers_make_no_series_no_log_and_no_memory(install: Install, tmp_path: Path) -> None:
    installation = install(f"sqlite:///{tmp_path}/flood.db")
    port = free_port()
    installation.environment["HOOKLEDGER_MONITOR"] = f"127.0.0.1:{port}"
    receiver = installation.receive()
    installation.send(event("evt_1"))
    chance = random.Random(53)

    def flood(count: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", installation.port, timeout=60)
        for _ in range(count):
            path = "/" + "".join(
                chance.choices(string.ascii_letters + string.digits + "/_-%", k=chance.randint(1, 60))
            )
            path = chance.choice([path, "/stripe", f"/stripe{path}", "/github?a=" + path])
            headers = {
                "Stripe-Signature": path,
                "X-Request-Id": path,
                path.strip("/%")[:20].replace("/", "x") or "x": "1",
            }
            connection.request(chance.choice(["POST", "POST", "GET", "PUT"]), path, path, headers)
            connection.getresponse().read()
        connection.close()

    flood(300)  # each reason has come once
    before, memory, said = asked(port, "/metrics")[1], rss(receiver.pid), len(receiver.log.splitlines())
    flood(20_000)
    after = asked(port, "/metrics")[1]
    assert series(after) == series(before)
    assert metric(after, "requests_total") - metric(before, "requests_total") == 20_000
    assert rss(receiver.pid) - memory < 40_000, "kB"
    assert len(receiver.log.splitlines()) - said < 200
    installation.send(event("evt_2"))


ANSWERING = "tests.crash.answers_app:inbox"


def answers_of(installation: Installation, count: int) -> None:
    sent = installation.send(*(event(f"evt_{n}", "answer") for n in range(count)), times=2)
    assert set(sent.statuses()) == {200}, sent.statuses()


def test_the_process_that_answers_is_monitored(installation: Installation) -> None:
    """It runs handlers as a worker does: its counts are shown by the receiver, and its silence is."""
    installation.use(ANSWERING)
    port = free_port()
    installation.environment["HOOKLEDGER_MONITOR"] = f"127.0.0.1:{port}"
    receiver = installation.receive()

    def up(at: int) -> dict[str, float]:
        found = values(asked(at, "/metrics")[1])
        return {dict(labels)["process"]: value for (name, labels), value in found.items() if name == "hookledger_up"}

    for at in (port, installation.operator_port):
        eventually(lambda at=at: up(at) == {"receive": 1.0, "answering": 1.0}, "both answer")  # type: ignore[misc]
    answers_of(installation, 10)
    for at in (port, installation.operator_port):
        text = asked(at, "/metrics")[1]
        assert metric(text, "attempts_total", process="answering", source="stripe", outcome="processed") == 10
        assert metric(text, "settle_delay_seconds_count", process="answering") == 10
        assert metric(text, "answers_total", process="receive", result="run") == 10
        assert metric(text, "answer_lookups_total", process="receive", result="hit") == 10
        assert metric(text, "requests_total") == 20
    [pid] = answering_of(receiver)
    os.kill(pid, 19)  # frozen
    eventually(lambda: up(port)["answering"] == 0.0, "the silent one is told")
    os.kill(pid, 9)
    eventually(lambda: up(port) == {"receive": 1.0, "answering": 1.0}, "its successor has its socket")
    receiver.terminate()
    receiver.exit_code()


def asked_on(path: str, what: str) -> tuple[int, str]:
    """As `asked`, on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(path)
        connection.sendall(f"GET {what} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        answer = b"".join(iter(partial(connection.recv, 2**16), b"")).decode()
    return int(answer.split(" ")[1]), answer


def test_an_answering_process_whose_loop_is_blocked_is_not_healthy(
    install: Install, database_url: str, tmp_path: Path
) -> None:
    installation = install(database_url)
    installation.use(ANSWERING)
    monitored(installation, blocked_after="1s")
    receiver, announced, go = installation.receive(), tmp_path / "announced", tmp_path / "go"
    [pid] = eventually(lambda: answering_of(receiver), "the process that answers")
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    path = command[command.index("--metrics") + 1]
    eventually(lambda: Path(path).exists() and asked_on(path, "/readyz")[0] == 200, "it is ready")
    assert asked_on(path, "/healthz")[0] == 200
    installation.start_sending([event("evt_late", "late", announce=str(announced), go=str(go))])
    eventually(announced.exists, "the loop is blocked")
    eventually(lambda: "the event loop has not run" in asked_on(path, "/healthz")[1], "it says so")
    assert asked_on(path, "/healthz")[0] == 503
    assert asked_on(path, "/metrics")[0] == 200
    go.touch()
    eventually(lambda: asked_on(path, "/healthz")[0] == 200, "it runs again")


def test_charts_count_what_answers(installation: Installation) -> None:
    installation.use(ANSWERING)
    receiver = installation.receive()
    answers_of(installation, 10)
    receiver.terminate()
    receiver.exit_code()
    rows = installation.database.rows("SELECT what, sum(n) AS n FROM {h}rates GROUP BY what")
    rates = Counter({row["what"]: int(row["n"]) for row in rows})
    assert (rates["delivery.accepted"], rates["attempt.processed"]) == (10, 10)
    assert sum(n for what, n in rates.items() if what.startswith("delay.")) == 10


def test_serve_has_the_metrics_of_what_answers(installation: Installation) -> None:
    installation.use(ANSWERING)
    installation.give_token()
    installation.serve()

    def text() -> str:
        status, body = asked(installation.operator_port, "/metrics")
        return body if status == 200 else ""

    eventually(lambda: metric(text(), "up") == 4, "every process answers")
    answers_of(installation, 10)
    assert metric(text(), "attempts_total", process="answering", outcome="processed") == 10
    assert metric(text(), "attempts_total", process="work") == 0
