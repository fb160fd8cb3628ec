"""`hookledger send`: sign a test delivery as the provider would, and post it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import click
from msgspec import Struct

from ..errors import ConfigError, Unavailable
from ..inbox import Inbox, Source
from ..providers.sample import sample
from ..providers.sign import sign
from . import exits
from .common import finds_inbox, print_json, prints_json, run, status

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Sent(Struct, frozen=True):
    status: int
    answer: str


@click.command()
@click.argument("source")
@click.option("--type", "kind", envvar="HOOKLEDGER_SEND_TYPE", help="The event's type; a sample's own if not given.")
@click.option("--id", "ident", envvar="HOOKLEDGER_SEND_ID", help="The event's id; a new one if not given.")
@click.option("--body", type=click.File("rb"), help="A file with the body, - for stdin; else a sample.")
@click.option("--url", help="Where to; the intake's own address if not given.")
@click.option("--twice", is_flag=True, help="Send it again after the first answer.")
@click.option("--concurrently", type=click.IntRange(1, 1000), default=1, help="Send so many at the same moment.")
@click.option("--forge", is_flag=True, help="Sign with a wrong secret; must be refused.")
@finds_inbox
@prints_json
def send(
    inbox: Inbox,
    source: str,
    kind: str | None,
    ident: str | None,
    body: Any,
    url: str | None,
    twice: bool,
    concurrently: int,
    forge: bool,
    as_json: bool,
) -> None:
    """Post a signed test delivery to SOURCE, so that it can be tried without the provider."""
    if source not in inbox.sources:
        known = ", ".join(inbox.sources) or "none: name the application with --app or HOOKLEDGER_APP"
        raise ConfigError(f"there is no source {source!r}; there are: {known}")
    intake = inbox.settings.intake
    target = url or f"http://{intake.host}:{intake.port}/{source}"
    made = sample(inbox.sources[source].endpoint.contract, kind, ident)
    content = body.read() if body else made.body
    headers = _headers(inbox.sources[source], content, made.id, made.type, forge, target)
    answers = run(_post(target, content, headers, rounds=2 if twice else 1, at_once=concurrently))
    _report(answers, forge=forge, as_json=as_json)


def _headers(source: Source, body: bytes, ident: str, kind: str, forge: bool, url: str) -> list[tuple[str, str]]:
    endpoint = source.endpoint
    key = secrets.token_bytes(32) if forge else endpoint.secrets[0].key
    signed_url = endpoint.public_url or url
    return sign(endpoint.contract, key, body, now=time.time(), event_id=ident, event_type=kind, url=signed_url)


async def _post(
    url: str, body: bytes, headers: list[tuple[str, str]], *, rounds: int, at_once: int
) -> list[Sent]:
    import httpx2  # here: no other command should wait for it

    local = urlsplit(url).hostname in LOOPBACK
    if not local and at_once > 16:
        raise ConfigError("more than 16 at once go to this machine only")
    answers: list[Sent] = []
    limits = httpx2.Limits(max_connections=at_once)
    # A proxy, which the environment may name, does not lead to this machine.
    async with httpx2.AsyncClient(limits=limits, timeout=30, trust_env=not local) as client:

        async def one() -> Sent:
            response = await client.post(url, content=body, headers=headers)
            return Sent(response.status_code, response.text)

        for _ in range(rounds):
            try:
                answers += await asyncio.gather(*(one() for _ in range(at_once)))
            except httpx2.HTTPError as error:
                raise Unavailable(f"nobody answers at {url}: {error or type(error).__name__}") from error
    return answers


def _report(answers: list[Sent], *, forge: bool, as_json: bool) -> None:
    if as_json:
        print_json(answers)
    else:
        for answer, count in Counter((a.status, a.answer) for a in answers).items():
            times = f" (×{count})" if count > 1 else ""
            click.echo(f"{answer[0]} {answer[1]}{times}")
    refused = all(400 <= a.status < 500 for a in answers)
    accepted = all(200 <= a.status < 300 for a in answers)
    if not (refused if forge else accepted):
        status.print("[red]That is not the answer it should be.[/]")
        if any(a.status == 401 for a in answers):
            status.print("Does the receiver have the same secret for this source?")
        raise SystemExit(exits.UNEXPECTED_ANSWER)


