"""A provider: a process of its own that signs and posts events, and notes every answer. Standard library only.

    python -m tests.crash.sender PLAN LOG

Each event is posted until a 2xx arrives, `times` times in all; refused connections, cut ones and 503 are tried
again after a pause, until the plan's deadline. It shares no code with what it tests: the signatures are made
here from the providers' documentation.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

STRIPE = b"whsec_crash_tests_stripe_secret"
GITHUB = b"crash-tests-github-secret"
STANDARD = base64.b64decode("Y3Jhc2gtdGVzdHMtc3RhbmRhcmQtd2ViaG9va3M=")

Event = dict[str, Any]
Answer = tuple[int, dict[str, str]]


def mac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def signed(event: Event) -> tuple[bytes, dict[str, str]]:
    """Body and headers as the provider would send them now. The body is the same each time, the time is not."""
    now = str(int(time.time()))
    name, kind, do = event["id"], event["type"], event.get("do", {})
    match event["source"]:
        case "stripe":
            content = {"id": name, "type": kind, "do": do, "data": {"object": {"id": f"o_{name}"}}}
            content |= {"created": event["created"]} if "created" in event else {}
            body = json.dumps(content).encode()
            proof = mac(STRIPE, now.encode() + b"." + body).hex()
            return body, {"Stripe-Signature": f"t={now},v1={proof}"}
        case "github":
            body = json.dumps({"number": name, "do": do}).encode()
            proof = "sha256=" + mac(GITHUB, body).hex()
            return body, {"X-Hub-Signature-256": proof, "X-GitHub-Event": kind, "X-GitHub-Delivery": name}
        case "standard":
            body = json.dumps({"type": kind, "do": do, "data": {"id": f"o_{name}"}}).encode()
            proof = base64.b64encode(mac(STANDARD, f"{name}.{now}.".encode() + body)).decode()
            headers = {"webhook-id": name, "webhook-timestamp": now, "webhook-signature": f"v1,{proof}"}
            return body, headers
    raise ValueError(event["source"])


class Connection:
    """One kept-alive HTTP/1.1 connection, opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """The answer. Status 0: nobody listens. Status -1: the request was on its way, and no answer came."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return 0, {}
        reader, writer = self._streams
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
            return await self._answer(reader)
        except (OSError, EOFError, ValueError):
            self.close()
            return -1, {}

    async def _answer(self, reader: asyncio.StreamReader) -> Answer:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:] if line)}
        await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(head[0].split(" ")[1]), headers

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Sender:
    def __init__(self, plan: dict[str, Any], log: TextIO) -> None:
        self._plan = plan
        self._log = log
        self._ends = time.monotonic() + plan["deadline"]
        events = plan["events"] * plan.get("times", 1)
        if plan.get("times", 1) > 1:
            random.Random(plan["seed"]).shuffle(events)
        self._events: Iterator[Event] = iter(events)
        self._missed = 0

    async def run(self) -> int:
        """How many events never got a 2xx."""
        await asyncio.gather(*(self._connection() for _ in range(self._plan["connections"])))
        return self._missed

    async def _connection(self) -> None:
        connection = Connection(self._plan["port"])
        for event in self._events:
            if not await self._deliver(connection, event):
                self._missed += 1
            await asyncio.sleep(self._plan.get("pause", 0.0))
        connection.close()

    async def _deliver(self, connection: Connection, event: Event) -> bool:
        while time.monotonic() < self._ends:
            body, headers = signed(event)
            try:
                async with asyncio.timeout(20):
                    status, answered = await connection.post(f"/{event['source']}", body, headers)
            except TimeoutError:
                connection.close()
                status, answered = -1, {}
            self._note(event, status, answered)
            if 200 <= status < 300:
                return True
            if 400 <= status < 500:
                return False  # for good: nothing here is ever sent wrongly
            await asyncio.sleep(0.05)
        return False

    def _note(self, event: Event, status: int, headers: dict[str, str]) -> None:
        line = {
            "id": event["id"],
            "status": status,
            "time": time.time(),
            "retry_after": headers.get("retry-after"),
        }
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())
    with Path(sys.argv[2]).open("a") as log:
        return 1 if asyncio.run(Sender(plan, log).run()) else 0


if __name__ == "__main__":
    sys.exit(main())
