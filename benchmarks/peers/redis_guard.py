"""The usual guard: a lock and a cache of seen ids in Redis around one durable row in PostgreSQL.

Lock and look-up share one round trip, and so do remembering and releasing: the pipelined form of the
pattern, because the form with four round trips is slower. Valkey runs with an append-only file synced
every second, so the cache may forget its last second after a crash; the primary key still holds.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from benchmarks.peers.stripe import INSERT, Pool, open_pool, verified

SECRET = os.environ["STRIPE_SECRET"].encode()
LOCK_SECONDS = 30
SEEN_SECONDS = 24 * 60 * 60

# Only the holder may release: after an expiry the key may be somebody else's.
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.pool = pool = await open_pool()
    app.state.redis = redis = Redis.from_url(os.environ["REDIS_URL"])
    app.state.release = redis.register_script(RELEASE)
    await redis.script_load(RELEASE)
    yield
    await redis.aclose()
    await pool.close()


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks/stripe")
async def receive(request: Request) -> Response:
    body = await request.body()
    if not verified(request.headers.get("stripe-signature", ""), body, SECRET):
        return Response(status_code=401)
    event = json.loads(body)
    lock, seen, token = f"lock:{event['id']}", f"seen:{event['id']}", uuid.uuid4().hex

    pool: Pool = request.app.state.pool
    redis: Redis = request.app.state.redis
    release: AsyncScript = request.app.state.release
    async with redis.pipeline(transaction=False) as pipe:
        pipe.set(lock, token, nx=True, ex=LOCK_SECONDS)
        pipe.get(seen)
        locked, known = await pipe.execute()
    if not locked:
        return Response(status_code=409)  # another delivery of it is in hand; the provider comes again
    if known:
        await release(keys=[lock], args=[token])
        return Response(status_code=200)
    try:
        await pool.execute(INSERT, event["id"], event["type"], body)
    except BaseException:
        await release(keys=[lock], args=[token])
        raise
    async with redis.pipeline(transaction=False) as pipe:
        pipe.set(seen, b"1", ex=SEEN_SECONDS)
        pipe.evalsha(release.sha, 1, lock, token)
        await pipe.execute()
    return Response(status_code=202)
