"""Draws tickets as fast as it can, and notes each after it has it.

python -m tests.crash.drawer URL FILE
"""

import asyncio
import random
import sys

from hookledger.clock import Clock
from hookledger.errors import StoreError, Unavailable
from hookledger.store.connect import connect


async def main(url: str, file: str) -> None:
    store = connect(url, clock=Clock())
    await store.open()
    with open(file, "ab", buffering=0) as notes:
        while True:
            try:
                drawn = await store.tickets.draw(random.randint(1, 3))
            except (Unavailable, StoreError):  # the database is away
                await asyncio.sleep(0.05)
                continue
            notes.write(b"".join(b"%d\n" % ticket for ticket in drawn))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
