"""Twelve attacks on the receiver: a process of its own, standard library only, loopback only.

    python -m tests.attacks.attackers NAME PORT SECONDS

Each attack has a number of connections, a longest time, and stops by itself. The last line that it prints tells what
it did. It shares no code with what it attacks.
"""

import asyncio
import contextlib
import json
import resource
import socket
import struct
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

MOST_CONNECTIONS = 1500
MOST_SECONDS = 120.0
BACK_OFF = 0.5
"""Seconds before a place that was lost is fought for again."""
SOURCES = ("adyen", "sns", "mailgun")

FLOATS = b"[" + b",".join([b"1e308"] * 174_000) + b"]"
NESTED = b"[" + b",".join([b"[" * 120 + b"]" * 120] * 4_300) + b"]"
ESCAPES = b"%41" * 349_000
COSTLY = {
    "braintree": b"bt_signature=made_up|" + b"0" * 40 + b"&bt_payload=" + ESCAPES,
    "twilio": b"Body=" + ESCAPES,
    "adyen": b'{"live":"false","notificationItems":[{"NotificationRequestItem":{}}],"x":' + NESTED + b"}",
    "mailgun": b'{"signature":{"timestamp":"1","token":"t","signature":"0"},"x":' + NESTED + b"}",
}
BLOCK = bytes(65_536)
LARGE = 25_000_000


class Stranger:
    """One connection after another, and what came of them."""

    def __init__(self, port: int, number: int, told: Counter[str]) -> None:
        self.number = number
        self._port = port
        self._told = told

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.tell("connections")
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def tell(self, what: str) -> None:
        self._told[what] += 1

    async def answer(self, reader: asyncio.StreamReader) -> None:
        """Read one answer, and count its status."""
        head = await reader.readuntil(b"\r\n\r\n")
        _, _, rest = head.lower().partition(b"content-length: ")
        await reader.readexactly(int(rest.split(b"\r\n")[0]) if rest else 0)
        self.tell(head.split(b" ")[1].decode())


def post(source: str, *headers: str) -> bytes:
    lines = [f"POST /{source} HTTP/1.1", "Host: 127.0.0.1", *headers]
    return "".join(line + "\r\n" for line in lines).encode() + b"\r\n"


def forged(source: str, length: int | None) -> bytes:
    """The head of a delivery signed with no secret of theirs; chunked without a length."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    proofs = {
        "stripe": [f"Stripe-Signature: t=1900000000,v1={'0' * 64}"],
        "github": [f"X-Hub-Signature-256: sha256={'0' * 64}", "X-GitHub-Event: push", "X-GitHub-Delivery: 1"],
        "twilio": ["X-Twilio-Signature: AAAAAAAAAAAAAAAAAAAAAAAAAAA="],
        "standard": ["webhook-id: 1", "webhook-timestamp: 1900000000", "webhook-signature: v1,AAAA"],
    }
    return post(source, *proofs.get(source, []), size)


# ── the attacks: what one stranger does again and again ──


async def float_bomb(stranger: Stranger) -> None:
    """Numbers that take seconds to read, where the proof lies in the body."""
    source = SOURCES[stranger.number % len(SOURCES)]
    async with stranger.connected() as (reader, writer):
        while True:
            writer.write(post(source, f"Content-Length: {len(FLOATS)}") + FLOATS)
            await stranger.answer(reader)


async def costly_bodies(stranger: Stranger) -> None:
    """What takes longest to look at before it is proved."""
    source = list(COSTLY)[stranger.number % len(COSTLY)]
    async with stranger.connected() as (reader, writer):
        while True:
            writer.write(forged(source, len(COSTLY[source])) + COSTLY[source])
            await stranger.answer(reader)


async def large_forged_bodies(stranger: Stranger) -> None:
    async with stranger.connected() as (reader, writer):
        chunked = stranger.number % 2
        writer.write(forged("github", None if chunked else LARGE))
        for _ in range(LARGE // len(BLOCK)):
            writer.write(b"%x\r\n%b\r\n" % (len(BLOCK), BLOCK) if chunked else BLOCK)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if chunked else bytes(LARGE % len(BLOCK)))
        await stranger.answer(reader)


async def slow_headers(stranger: Stranger) -> None:
    async with stranger.connected() as (reader, writer):
        writer.write(b"POST /stripe HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        await drip(reader, writer, b"x")


async def slow_bodies(stranger: Stranger) -> None:
    """Half of them within what small bodies have to themselves."""
    async with stranger.connected() as (reader, writer):
        writer.write(forged("github", LARGE))
        writer.write(bytes(60_000) if stranger.number % 2 else bytes(200_000))
        await drip(reader, writer, b"x")


async def idle_connections(stranger: Stranger) -> None:
    """After a large body, after a small one, or without ever having said anything."""
    async with stranger.connected() as (reader, writer):
        if size := (0, 1000, 1_000_000)[stranger.number % 3]:
            writer.write(forged("github", size) + bytes(size))
            await stranger.answer(reader)
        await reader.read(1)


async def resets(stranger: Stranger) -> None:
    async with stranger.connected() as (_, writer):
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(forged("github", 1_000_000) + bytes((0, 100_000, 1_000_000)[stranger.number % 3]))
        await asyncio.sleep(0.01)


async def header_bombs(stranger: Stranger) -> None:
    bombs = (
        b"POST /stripe HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a:b\r\n" * 200_000,
        b"POST /stripe HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + bytes(b"x" * 1_000_000),
        b"POST /stripe?" + b"x" * 1_000_000,
        forged("github", None) + b"1;" + b"x" * 1_000_000,
        forged("github", None) + b"0\r\n" + b"a: b\r\n" * 200_000,
    )
    async with stranger.connected() as (reader, writer):
        writer.write(bombs[stranger.number % len(bombs)])
        await stranger.answer(reader)


async def endless_trailers(stranger: Stranger) -> None:
    """After the last chunk, within what a large body might take."""
    async with stranger.connected() as (reader, writer):
        writer.write(forged("github", None) + b"0\r\nX-Long: ")
        for _ in range(2 * LARGE // len(BLOCK)):
            writer.write(b"x" * len(BLOCK))
            await writer.drain()
        await stranger.answer(reader)


async def forged_flood(stranger: Stranger) -> None:
    source = ("stripe", "github", "standard")[stranger.number % 3]
    body = b'{"id":"evt_forged","type":"order"}'
    async with stranger.connected() as (reader, writer):
        while True:
            writer.write(forged(source, len(body)) + body)
            await stranger.answer(reader)


async def pipelining(stranger: Stranger) -> None:
    """Hundreds of requests before the first answer; half of the strangers never read one."""
    async with stranger.connected() as (reader, writer):
        writer.write((forged("stripe", 1000) + bytes(1000)) * 500)
        if stranger.number % 2:
            await stranger.answer(reader)
        else:
            await asyncio.sleep(0.2)
            stranger.tell("unread")


async def half_closed(stranger: Stranger) -> None:
    """The sending side is closed, after all of a request or half of one; the other is kept open."""
    async with stranger.connected() as (reader, writer):
        size = 100_000
        writer.write(forged("github", size) + bytes(size if stranger.number % 2 else size // 2))
        writer.write_eof()
        if stranger.number % 2:
            await stranger.answer(reader)
        await reader.read(1)
        await asyncio.sleep(1.0)


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drop: bytes) -> None:
    """A little now and then, until the other side has had enough."""
    ended = asyncio.ensure_future(reader.read(1))
    try:
        while not (await asyncio.wait([ended], timeout=0.5))[0]:
            writer.write(drop)
    finally:
        ended.cancel()


@dataclass(frozen=True)
class Attack:
    once: Callable[[Stranger], Awaitable[None]]
    connections: int
    """Over 1,024 where the attack is on the places themselves."""
    back_off: float = 0.0


ATTACKS = {
    attack.once.__name__: attack
    for attack in (
        Attack(float_bomb, 4),
        Attack(costly_bodies, 32),
        Attack(large_forged_bodies, 40),
        Attack(slow_headers, MOST_CONNECTIONS, BACK_OFF),
        Attack(slow_bodies, MOST_CONNECTIONS, BACK_OFF),
        Attack(idle_connections, MOST_CONNECTIONS, BACK_OFF),
        Attack(resets, 32),
        Attack(header_bombs, 32),
        Attack(endless_trailers, 40),
        Attack(forged_flood, 64),
        Attack(pipelining, 64),
        Attack(half_closed, 256),
    )
}


async def run(attack: Attack, port: int, seconds: float) -> Counter[str]:
    told: Counter[str] = Counter()

    async def again(stranger: Stranger) -> None:
        while True:
            try:
                await attack.once(stranger)
                stranger.tell("rounds")
            except (OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                stranger.tell("cut off")
            await asyncio.sleep(attack.back_off)

    strangers = [asyncio.create_task(again(Stranger(port, n, told))) for n in range(attack.connections)]
    await asyncio.wait(strangers, timeout=min(seconds, MOST_SECONDS))
    for task in strangers:
        task.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    return told


def main() -> None:
    name, port, seconds = sys.argv[1:]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * MOST_CONNECTIONS)), hard))
    print(json.dumps(asyncio.run(run(ATTACKS[name], int(port), float(seconds)))))


if __name__ == "__main__":
    main()
