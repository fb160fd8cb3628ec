"""A lock and a cached response in Redis, as a careful team writes them.

One key holds the lock's token and then the response, so that one command claims it or reads the response, and the
response replaces the token only if it is still there. Valkey syncs its append-only file every second: an answer that
was given may be lost.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from redis.asyncio import BlockingConnectionPool, Redis
from redis.commands.core import AsyncScript

from benchmarks.peers.answers import BUSY, UNSIGNED, answer, read, response

LOCK_SECONDS = 30
KEEP_SECONDS = 24 * 60 * 60
RUNNING = b"running:"

# Only the holder may answer or release: after an expiry the key may be another's.
FINISH = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[2], 'ex', ARGV[3])
return 1
"""
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    pool = BlockingConnectionPool.from_url(os.environ["REDIS_URL"], max_connections=64, timeout=None)
    app.state.redis = redis = Redis.from_pool(pool)
    app.state.finish, app.state.release = redis.register_script(FINISH), redis.register_script(RELEASE)
    yield
    await redis.aclose()


app = FastAPI(lifespan=lifespan)


@app.post("/webhooks/stripe")
async def receive(request: Request) -> Response:
    delivery = await read(request)
    if delivery is None:
        return Response(status_code=UNSIGNED)
    redis: Redis = request.app.state.redis
    finish: AsyncScript = request.app.state.finish
    release: AsyncScript = request.app.state.release
    key, token = f"answer:{delivery.id}", RUNNING + uuid.uuid4().bytes
    found = await redis.set(key, token, nx=True, get=True, ex=LOCK_SECONDS)
    if isinstance(found, bytes):
        return Response(status_code=BUSY) if found.startswith(RUNNING) else response(found)
    try:
        body = answer(delivery.event)
    except BaseException:
        await release(keys=[key], args=[token])
        raise
    if not await finish(keys=[key], args=[token, body, KEEP_SECONDS]):
        return Response(status_code=BUSY)
    return response(body)
