"""`python -m tests.crash.idempotent_app KEY OUT KILL REQUESTS`: a partner API, asked without a server in between.

It asks that many times concurrently, each again while it is told to wait, and writes the answers to OUT. KILL: `0`, a
number (kill -9 at that commit, the moments before and after each being steps), or `route`: in the route.
"""

import asyncio
import json
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request

from hookledger import Event, Inbox, current_event
from tests.asgi_client import Answer, ask
from tests.crash.app import WRITE
from tests.crash.killed_at import Counter, count_commits

OPTIONS: dict[str, Any] = json.loads(os.environ.get("GUARD", "{}"))
ELSEWHERE = os.environ.get("ELSEWHERE")
"""A file that the route writes to, instead of its transaction."""
AGAIN = ("in-flight", "unavailable", "too-many-waiting")

inbox = Inbox(os.environ["HOOKLEDGER_DATABASE"])
partner = inbox.idempotent("partner", caller=lambda scope: "acme", routes=["POST /orders"], lease="1s", **OPTIONS)
app = FastAPI()
app.add_middleware(partner)


@app.post("/orders")
async def order(request: Request) -> dict[str, str]:
    event: Event = current_event(request)
    if ELSEWHERE:
        with Path(ELSEWHERE).open("a") as file:
            file.write(f"{event.key} {os.getpid()}\n")
    else:
        await event.tx.execute(WRITE, event.key, event.attempt, os.getpid())
    if sys.argv[3] == "route":
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(float(os.environ.get("SLOW", "0")))
    return {"id": str(uuid.uuid4())}


async def one(key: str) -> Answer:
    while True:
        answer = await ask(app, "POST", "/orders", b'{"item": "tea"}', [("Idempotency-Key", key)])
        if answer.status == 200 or not any(answer.json["type"].endswith(again) for again in AGAIN):
            return answer
        await asyncio.sleep(0.05)


async def main(key: str, out: Path, kill: str, requests: int) -> None:
    await partner.start()
    if kill.isdigit() and int(kill):
        count_commits(Counter(int(kill)))
    answers = await asyncio.gather(*(one(key) for _ in range(requests)))
    out.write_text(json.dumps([[answer.status, answer.body.decode()] for answer in answers]))
    await partner.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
