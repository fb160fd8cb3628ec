"""A provider whose objects change, and which says what they are now: a sender with an API beside it.

    python -m tests.crash.order_provider PLAN LOG

An object changes just before the event about that is sent first. The API, at the port in ORDER_PROVIDER, answers
after a moment, and every seventh time with 429.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from tests.crash.sender import Connection, Event, Sender


class Provider(Sender):
    def __init__(self, plan: dict[str, Any], log: Any) -> None:
        super().__init__(plan, log)
        self._objects: dict[str, int] = {}
        self._asked = 0
        self._random = random.Random(plan["seed"])

    async def run(self) -> int:
        port = int(os.environ["ORDER_PROVIDER"])
        server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        missed = await super().run()
        while not Path(os.environ["ORDER_OVER"]).exists():  # workers still ask
            await asyncio.sleep(0.1)
        server.close()
        return missed

    async def _deliver(self, connection: Connection, event: Event) -> bool:
        entity, version = event["do"]["entity"], event["do"]["version"]
        self._objects[entity] = max(version, self._objects.get(entity, 0))
        return await super()._deliver(connection, event)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            entity = head.split(" ")[1][1:]
            self._asked += 1
            found = json.dumps(self._objects.get(entity, 0)).encode()
            await asyncio.sleep(self._random.random() * 0.05)  # it may change before the answer arrives
            status = b"200 OK"
            if self._asked % 7 == 0:
                status = b"429 Too Many Requests\r\nRetry-After: 0.2"
            lines = (b"HTTP/1.1 " + status, b"Content-Length: %d" % len(found), b"Connection: close", b"", found)
            writer.write(b"\r\n".join(lines))
            await writer.drain()
        except (OSError, EOFError):
            pass  # its worker was killed
        finally:
            writer.close()


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())
    with Path(sys.argv[2]).open("a") as log:
        return 1 if asyncio.run(Provider(plan, log).run()) else 0


if __name__ == "__main__":
    sys.exit(main())
