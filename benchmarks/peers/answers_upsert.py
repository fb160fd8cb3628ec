"""INSERT ... ON CONFLICT in PostgreSQL, the response stored in the transaction that runs the work.

A concurrent duplicate waits at the insert until that transaction ends. PEER_LOOK=1 reads a stored response first,
which is one round trip more for a new event and saves the transaction for a duplicate.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from benchmarks.peers.answers import UNSIGNED, answer, read, response
from benchmarks.peers.stripe import Pool, open_pool

TABLE = """
CREATE TABLE IF NOT EXISTS webhook_answers (
    id text PRIMARY KEY,
    body bytea NOT NULL,
    answer bytea,
    received_at timestamptz NOT NULL DEFAULT now()
)
"""
INSERT = "INSERT INTO webhook_answers (id, body) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING true"
STORE = "UPDATE webhook_answers SET answer = $2 WHERE id = $1"
FIND = "SELECT answer FROM webhook_answers WHERE id = $1"
LOOK_FIRST = os.environ.get("PEER_LOOK") == "1"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.pool = pool = await open_pool()
    await pool.execute(TABLE)
    yield
    await pool.close()


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks/stripe")
async def receive(request: Request) -> Response:
    delivery = await read(request)
    if delivery is None:
        return Response(status_code=UNSIGNED)
    pool: Pool = request.app.state.pool
    async with pool.acquire() as connection:
        if LOOK_FIRST and (stored := await connection.fetchval(FIND, delivery.id)) is not None:
            return response(stored)
        async with connection.transaction():
            if not await connection.fetchval(INSERT, delivery.id, delivery.body):
                return response(await connection.fetchval(FIND, delivery.id))
            body = answer(delivery.event)
            await connection.execute(STORE, delivery.id, body)
    return response(body)
