"""Runs the example through what usually goes wrong, then counts what happened. Takes about fifteen seconds.

    python show.py

Everything runs on this machine, in a temporary folder: the four services, a receiver and a worker.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
from remotes import Remotes, Request

HERE = Path(__file__).parent
PORT, OPERATOR_PORT = os.environ.get("PORT", "8700"), os.environ.get("OPERATOR_PORT", "8701")
Event = dict[str, Any]


def paid(name: str, number: int = 1, *, plan: str = "team") -> Event:
    """The event in invoice.json, of another customer: their first invoice, or a later one."""
    event: Event = json.loads((HERE / "invoice.json").read_text())
    invoice = event["data"]["object"]
    invoice |= {"id": f"in_{name}_{number}", "customer": f"cus_{name}", "customer_email": f"{name}@example.com"}
    invoice |= {"subscription": f"sub_{name}", "metadata": {"plan": plan}}
    invoice["status_transitions"]["paid_at"] += 100 * number
    return event | {"id": f"evt_{name}_{number}"}


def canceled(name: str, after: int) -> Event:
    """Canceled right after that invoice."""
    when = paid(name, after)["data"]["object"]["status_transitions"]["paid_at"] + 1
    content = {"object": {"id": f"sub_{name}", "canceled_at": when}}
    return {"id": f"evt_{name}_canceled", "type": "customer.subscription.deleted", "created": when, "data": content}


class Show:
    """The example, in a temporary folder."""

    def __init__(self, folder: Path, remotes: Remotes) -> None:
        mine = {name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")}
        self.environment = {**mine, **remotes.environment(), "STRIPE_WEBHOOK_SECRET": "whsec_made_up_for_the_show"}
        self.folder = folder
        self.before_approval = -1
        """Requests to the services before the late invoice was approved."""
        for name in ("app.py", "hookledger.toml"):
            shutil.copy(HERE / name, folder)
        self.run("app.py")  # makes the tables
        command = ["-m", "hookledger", "serve", "--dev", "--port", PORT, "--operator-port", OPERATOR_PORT]
        with (folder / "serve.log").open("wb") as log:
            self.server = subprocess.Popen(
                [sys.executable, *command], cwd=folder, env=self.environment, stdout=log, stderr=log
            )

    def run(self, *arguments: str) -> str:
        command = [sys.executable, *arguments]
        ended = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            sys.exit(f"{' '.join(arguments)}: {ended.stderr}")
        return ended.stdout.strip()

    def hookledger(self, *arguments: str) -> str:
        return self.run("-m", "hookledger", *arguments)

    def send(self, event: Event, *options: str) -> None:
        (self.folder / "event.json").write_text(json.dumps(event))
        url = f"http://127.0.0.1:{PORT}/stripe"
        answers = self.hookledger("send", "stripe", "--url", url, "--body", "event.json", *options)
        print("   ", answers.replace("\n", "\n    "))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(self.folder / "provisioning.db"))
        connection.set_busy_timeout(5000)
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline or self.server.poll() is not None:
                sys.exit(f"in vain: {what}\n{(self.folder / 'serve.log').read_text()[-3000:]}")
            time.sleep(0.05)

    def listens(self) -> bool:
        return "Receiving" in (self.folder / "serve.log").read_text()

    def kill_worker(self, request: Request) -> None:
        """Told of a request to the workspaces that is done, and not answered yet."""
        calls = "SELECT worker FROM effects WHERE state = 'started' AND name = 'upgrade_workspace'"
        for (worker,) in self.rows(calls)[:1]:
            os.kill(int(worker.split(":")[-2]), signal.SIGKILL)  # host:pid:token


def play(show: Show, remotes: Remotes) -> None:
    def done(invoices: int) -> Callable[[], bool]:
        """Whether so many receipts and entries exist, and nothing is in flight."""
        nothing_waits = "SELECT 1 FROM events WHERE state <> 'processed'"
        nothing_due = "SELECT 1 FROM effects WHERE state IN ('planned', 'started') OR due_at IS NOT NULL"
        return lambda: (
            len(remotes.mail.sent) == len(remotes.finance.entries) == invoices
            and not show.rows(nothing_waits)
            and not show.rows(nothing_due)
        )

    show.until(show.listens, "the server listens")
    print("1. The same delivery, five times at the same moment")
    show.send(paid("ada", 2, plan="enterprise"), "--concurrently", "5")
    show.until(done(1), "Ada has what she paid for")

    print("2. Ada cancels; then her first invoice arrives, late: it waits for an operator")
    show.send(canceled("ada", after=2))
    show.until(done(1), "Ada has cancelled")
    show.send(paid("ada", 1))
    show.until(
        lambda: show.rows("SELECT 1 FROM events WHERE state = 'needs_review'"), "the late invoice is in review"
    )
    show.before_approval = sum(len(remote.requests) for remote in remotes.all)
    show.hookledger("approve", "evt_ada_1", "--reason", "she paid before she cancelled", "--yes")
    print("    approved: she paid before she cancelled")
    show.until(done(2), "the late invoice is booked")

    print("3. The mail service sends and does not say so; the finance service books and says 500")
    remotes.mail.faults.append("after timeout")
    remotes.finance.faults.append("after 500")
    show.send(paid("bob"))
    show.until(done(3), "both were sorted out")

    print("4. The worker is killed when the workspace is upgraded, and before it could know")
    remotes.workspaces.during = show.kill_worker
    show.send(paid("cleo"))
    show.until(lambda: remotes.workspaces.known.get("cus_cleo"), "the workspace is upgraded")
    remotes.workspaces.during = lambda request: None
    show.until(done(4), "another worker has finished the work")

    print("5. The task service opens a task and closes the connection: outcome unknown, an operator looks")
    remotes.tasks.faults.append("after reset")
    show.send(paid("dan", plan="enterprise"))
    show.until(done(5), "all the rest is done")
    show.hookledger("resolve", "evt_dan_1", "open_onboarding_task", "--happened", "--reason", "I see it in the list")
    print("    resolved: it happened")


def count(show: Show, remotes: Remotes) -> bool:
    """What should have happened, beside what the services and the tables say."""
    statuses = dict(show.rows("SELECT id, status FROM subscriptions"))
    uses = dict(show.rows("SELECT account, sum(uses) FROM features WHERE feature = 'reports' GROUP BY account"))
    plans = {account: workspace["plan"] for account, workspace in remotes.workspaces.known.items()}
    bobs = [request.key for request in remotes.finance.requests if request.about == "in_bob_1"]
    lines: list[tuple[str, object, object]] = [
        ("subscriptions active, one canceled", ["active"] * 3 + ["canceled"], sorted(statuses.values())),
        ("status after the late invoice", "canceled", statuses["sub_ada"]),
        ("requests about Ada before the approval", 4, show.before_approval),
        ("reports that Ada may use", 1100, uses["cus_ada"]),
        ("plan of Ada's workspace", "enterprise", plans["cus_ada"]),
        ("workspaces upgraded", 4, sum(request.done for request in remotes.workspaces.requests)),
        ("finance entries", 5, len(remotes.finance.entries)),
        ("requests for Bob's entry", "2 under 1 key", f"{len(bobs)} under {len(set(bobs))} key"),
        ("receipts sent", 5, len(remotes.mail.sent)),
        ("onboarding tasks, for two enterprises", 2, len(remotes.tasks.opened)),
        ("events left for an operator", 0, len(show.rows("SELECT 1 FROM events WHERE attention"))),
    ]
    print(f"\n{'':45} {'expected':>30}   found")
    for what, expected, found in lines:
        shown = [", ".join(value) if isinstance(value, list) else value for value in (expected, found)]
        print(f"{what:45} {shown[0]:>30}   {shown[1]} {'✔' if expected == found else '✘'}")
    return all(expected == found for _, expected, found in lines)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="provisioning-") as folder, Remotes() as remotes:
        show = Show(Path(folder), remotes)
        try:
            play(show, remotes)
            right = count(show, remotes)
        finally:
            show.server.terminate()
            show.server.wait()
    print("\nEach effect happened once." if right else "\nSomething did not happen once.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
