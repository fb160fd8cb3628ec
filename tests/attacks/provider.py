"""A provider that delivers while others attack: so many signed events a second, each of them once.

    python -m tests.attacks.provider PLAN LOG

The next delivery goes when it is due, whether or not the last one was answered. Every other one goes over a
connection that is kept, the rest over a new one each. Nothing is sent again: what is not acked counts as lost, as it
is with a provider that does not resend.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from tests.crash.sender import Connection, Event, signed
from tests.soak import LONG

PATIENCE = 10.0 if LONG else 60.0
"""Seconds for one answer: as GitHub has, where the machine is quiet."""


class Provider:
    def __init__(self, plan: dict[str, Any], log: TextIO) -> None:
        self._plan = plan
        self._log = log
        self._kept: list[Connection] = []

    async def run(self) -> None:
        began = time.monotonic()
        deliveries = []
        for number, event in enumerate(self._plan["events"]):
            await asyncio.sleep(began + number / self._plan["rate"] - time.monotonic())
            deliveries.append(asyncio.create_task(self._deliver(event, keep=number % 2 == 0)))
        await asyncio.gather(*deliveries)

    async def _deliver(self, event: Event, *, keep: bool) -> None:
        connection = self._kept.pop() if keep and self._kept else Connection(self._plan["port"])
        body, headers = signed(event)
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                status, _ = await connection.post(f"/{event['source']}", body, headers)
        except TimeoutError:
            connection.close()
            status = -1
        line = {"id": event["id"], "status": status, "seconds": time.monotonic() - began}
        self._log.write(json.dumps(line) + "\n")
        if keep:
            self._kept.append(connection)
        else:
            connection.close()


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    with Path(sys.argv[2]).open("a") as log:
        asyncio.run(Provider(plan, log).run())


if __name__ == "__main__":
    main()
