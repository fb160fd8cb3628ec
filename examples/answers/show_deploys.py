"""Sends each kind of request, twice, and counts what happened. Takes about ten seconds.

    python show_deploys.py

Everything runs on this machine, in a temporary folder: a receiver, the process that answers, and a worker.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

HERE = Path(__file__).parent
PORT, OPERATOR_PORT = os.environ.get("PORT", "8700"), os.environ.get("OPERATOR_PORT", "8701")


def public_key(file: Path) -> str:
    """Return what Discord shows as the application's public key, if this were its private one."""
    private = load_pem_private_key(file.read_bytes(), None)
    assert isinstance(private, Ed25519PrivateKey)
    return private.public_key().public_bytes_raw().hex()


class Show:
    """The example, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        mine = {name: value for name, value in os.environ.items() if not name.startswith("HOOKLEDGER_")}
        self.folder, self.environment = folder, mine | {"SLACK_SIGNING_SECRET": "made-up-for-the-show"}
        for name in ("deploys.py", "hookledger.toml"):
            shutil.copy(HERE / name, folder)
        self.hookledger("providers", "discord_interactions", "--new-test-key", "test-key.pem")
        self.environment["DISCORD_PUBLIC_KEY"] = public_key(folder / "test-key.pem")
        self.run("deploys.py")  # makes the tables
        command = ["-m", "hookledger", "serve", "--dev", "--port", PORT, "--operator-port", OPERATOR_PORT]
        with (folder / "serve.log").open("wb") as log:
            self.server = subprocess.Popen(
                [sys.executable, *command], cwd=folder, env=self.environment, stdout=log, stderr=log
            )

    def run(self, *arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            sys.exit(f"{' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return ended.stdout.strip()

    def hookledger(self, *arguments: str) -> str:
        return self.run("-m", "hookledger", *arguments)

    def send(self, source: str, *options: str) -> list[Any]:
        """Send it twice, concurrently; return the answers that differ."""
        url = f"http://127.0.0.1:{PORT}/{source}"
        told = self.hookledger("send", source, "--url", url, "--twice", "--json", *options)
        answers = {(one["status"], one["answer"]) for one in json.loads(told)}
        for status, answer in sorted(answers):
            print(f"    {status} {answer}")
        return sorted(answers)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(self.folder / "answers.db"))
        connection.set_busy_timeout(5000)
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()

    def ready(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if "Receiving discord" in (self.folder / "serve.log").read_text() and self._listens():
                return
            time.sleep(0.1)
        sys.exit((self.folder / "serve.log").read_text())

    def _listens(self) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", int(PORT))) == 0


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        show = Show(Path(name))
        try:
            play(show)
        finally:
            show.server.terminate()
            show.server.wait(30)


def play(show: Show) -> None:
    show.ready()
    print("/deploy production in Slack, delivered twice: one deploy, the same answer")
    slack = show.send("slack")
    print("/deploy nowhere")
    show.send("slack", "--set", "text=nowhere")
    print("a command in Discord, delivered twice")
    discord = show.send("discord")
    print("what Discord suggests while the user types")
    show.send("discord", "--type", "autocomplete.deploy")
    print("the button, delivered twice")
    button = show.send("discord", "--type", "component", "--set", "data.custom_id=approve:2")
    print("the button, pressed again")
    show.send("discord", "--type", "component", "--set", "data.custom_id=approve:2")
    deadline = time.monotonic() + 60
    folder = show.folder / "deploys"
    while time.monotonic() < deadline and len(list(folder.glob("*"))) < 2:
        time.sleep(0.1)
    deploys = show.rows("SELECT number, environment, approved_by IS NOT NULL FROM deploys ORDER BY number")
    started = {file.name: file.read_text() for file in sorted(folder.glob("*"))}
    print(f"\ndeploys: {deploys}\nstarted: {started}")
    if not len(slack) == len(discord) == len(button) == 1:
        sys.exit("a repetition got another answer")
    if deploys != [(1, "production", 0), (2, "production", 1)]:
        sys.exit("these are not the two deploys that were requested")
    if started != {"1": "production", "2": "production"}:
        sys.exit("these are not the two deploys that were started")


if __name__ == "__main__":
    main()
