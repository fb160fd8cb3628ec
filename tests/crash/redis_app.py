"""Callers of the guard on Redis, as one process of an application.

    python -m tests.crash.redis_app FOLDER REPEAT CALLERS KEY…

Each key is called CALLERS times concurrently, one key after the other. FOLDER has what the outside world sees: a line
in `runs` for each run of the work, and a line in `answers` for each answer that a caller got. While it has a file
`hang`, the work waits.
"""

import asyncio
import os
import random
import sys
import uuid
from pathlib import Path

from redis.asyncio import Redis

from hookledger.contrib.redis import Guard, Lease
from hookledger.errors import HookledgerError


def tell(file: Path, *words: object) -> None:
    """Append a line in one write: several processes do so."""
    line = " ".join([*map(str, words), str(os.getpid())]) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


async def call(guard: Guard, folder: Path, key: str, repeat: str) -> None:
    async def work(lease: Lease) -> bytes:
        tell(folder / "runs", key)
        while (folder / "hang").exists():
            await asyncio.sleep(0.02)
        await asyncio.sleep(random.uniform(0, 0.01))
        if lease.lost:
            tell(folder / "lost", key)
        return uuid.uuid4().hex.encode()

    try:
        outcome = await guard.run(
            work,
            caller="acme",
            source="orders",
            key=key,
            fingerprint=key,
            repeat=repeat,  # type: ignore[arg-type]
            wait=60,
        )
    except HookledgerError as error:
        tell(folder / "answers", key, type(error).__name__)
    else:
        tell(folder / "answers", key, outcome.answer.decode())


async def main(folder: Path, repeat: str, callers: int, keys: list[str]) -> None:
    async with Redis.from_url(os.environ["REDIS_URL"]) as client:
        guard = Guard(client, away="closed", lease="3s", timeout="900ms")
        tell(folder / "ready")
        while not (folder / "go").exists():
            await asyncio.sleep(0.01)
        for key in keys:
            await asyncio.gather(*(call(guard, folder, key, repeat) for _ in range(callers)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
