"""FastAPI with `hookledger.contrib.redis`: what the guard costs next to a lock written by hand."""

from __future__ import annotations

import os

from fastapi import FastAPI, Request, Response
from redis.asyncio import Redis

from benchmarks.peers.answers import BUSY, KIND, UNSIGNED, answer, read
from hookledger import Answer
from hookledger.contrib.redis import Guard, InFlight, Lease

app = FastAPI()
guard = Guard(Redis.from_url(os.environ["REDIS_URL"]), away="closed", timeout="3s")


@app.post("/webhooks/stripe")
async def receive(request: Request) -> Response:
    delivery = await read(request)
    if delivery is None:
        return Response(status_code=UNSIGNED)

    async def work(lease: Lease) -> Answer:
        return Answer(answer(delivery.event), headers={"content-type": KIND})

    try:
        outcome = await guard.run(
            work,
            caller="stripe",
            source="stripe",
            key=delivery.id,
            fingerprint=delivery.body,
            repeat="safe",
        )
    except InFlight:
        return Response(status_code=BUSY)
    return Response(outcome.answer.body, outcome.answer.status, dict(outcome.answer.headers))
