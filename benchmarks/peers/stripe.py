"""What both hand-written peers share: Stripe's check of a signature, and the one row they keep."""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from typing import TypeAlias

import asyncpg

TOLERANCE = 300

TABLE = """
CREATE TABLE IF NOT EXISTS webhook_events (
    id text PRIMARY KEY,
    type text NOT NULL,
    body bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now()
)
"""
INSERT = "INSERT INTO webhook_events (id, type, body) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING"

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


def verified(header: str, body: bytes, secret: bytes) -> bool:
    """Whether a v1 signature in the header is the HMAC of this body at a recent time."""
    parts = [part.partition("=") for part in header.split(",")]
    timestamp = next((value for name, _, value in parts if name == "t"), "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    expected = hmac.digest(secret, timestamp.encode() + b"." + body, hashlib.sha256).hex().encode()
    return any(hmac.compare_digest(expected, value.encode()) for name, _, value in parts if name == "v1")


async def open_pool() -> Pool:
    """A full pool, opened at start-up. asyncpg prepares the insert once per connection and keeps it.

    PEER_POOL is its size. PEER_POOL_RESET=default brings back asyncpg's `RESET ALL` round trip at each
    release; without it the peer is faster, and these sessions change nothing that needs a reset.
    """
    size = int(os.environ.get("PEER_POOL", "16"))
    pool = await asyncpg.create_pool(
        os.environ["DATABASE_URL"],
        min_size=size,
        max_size=size,
        max_inactive_connection_lifetime=0,
        server_settings={"synchronous_commit": "on"},
        reset=None if os.environ.get("PEER_POOL_RESET") == "default" else _keep,
    )
    await pool.execute(TABLE)
    return pool


async def _keep(_: object) -> None:
    """Give the session back as it is."""
