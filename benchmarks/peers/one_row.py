"""The plain way: verify the signature and insert one row per request, each its own durable commit."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from benchmarks.peers.stripe import INSERT, Pool, open_pool, verified

SECRET = os.environ["STRIPE_SECRET"].encode()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.pool = pool = await open_pool()
    yield
    await pool.close()


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks/stripe")
async def receive(request: Request) -> Response:
    body = await request.body()
    if not verified(request.headers.get("stripe-signature", ""), body, SECRET):
        return Response(status_code=401)
    event = json.loads(body)
    pool: Pool = request.app.state.pool
    inserted = await pool.execute(INSERT, event["id"], event["type"], body)
    return Response(status_code=202 if inserted == "INSERT 0 1" else 200)
