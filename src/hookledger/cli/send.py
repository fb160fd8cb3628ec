"""`hookledger send`: sign a test delivery as the provider would, and post it."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec
from msgspec import Struct

from ..errors import ConfigError, Unavailable
from ..inbox import Inbox
from ..providers import changes
from ..providers.contract import Contract
from ..providers.handshake_request import handshake_request
from ..providers.sample import NO_TYPE, Sample, listed, sample
from ..providers.schemes.base import Draft
from ..providers.schemes.testing_keys import new_test_key
from ..providers.sign import delivery, pairs
from ..receive.endpoint import Endpoint, with_secrets
from . import exits
from .common import inbox_options, print_json, prints_json, run, setting, status

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Sent(Struct, frozen=True):
    status: int
    answer: str


@click.command()
@click.argument("source")
@click.option("--type", "kind", help="Event type; default: the first of --list.")
@click.option("--id", "ident", help="Event id; default: a new one.")
@click.option("--set", "edits", multiple=True, metavar="PATH=VALUE", help="Change a field of the sample; repeatable.")
@click.option("--list", "listing", is_flag=True, help="List the types that have a sample.")
@click.option("--body", type=click.File("rb"), help="File with the body, - for stdin; default: a sample.")
@click.option("--url", help="Target; default: the intake's address in the settings.")
@setting("--port", variable="PORT", type=click.IntRange(1, 65535), help="Port of the receiver, without --url.")
@click.option("--twice", is_flag=True, help="Send it again after the first answer.")
@click.option("--concurrently", type=click.IntRange(1, 1000), default=1, help="Deliveries to send concurrently.")
@click.option("--forge", is_flag=True, help="Sign with a wrong secret; the receiver must reject it.")
@click.option("--handshake", is_flag=True, help="Send the provider's endpoint handshake instead.")
@inbox_options
@prints_json
def send(
    inbox: Inbox,
    source: str,
    kind: str | None,
    ident: str | None,
    edits: tuple[str, ...],
    listing: bool,
    body: Any,
    url: str | None,
    port: int | None,
    twice: bool,
    concurrently: int,
    forge: bool,
    handshake: bool,
    as_json: bool,
) -> None:
    """Send a signed test delivery

    The body is a sample shaped like the provider's, with new ids and the current time. With the same --id you get the
    same body until the end of the day (UTC), so that the second delivery is a duplicate.

    --set data.object.customer=cus_1 changes a field. The value is JSON if it parses as JSON, else text. Numbers in
    the path are list indexes, \\. is a dot in a name. Only the last name may be new.
    """
    if not inbox.examiner.source(source).delivered:  # raises for an unknown source
        raise ConfigError(f"source {source!r} guards your own routes: send the request to your application")
    if listing:
        _list(inbox.sources[source].endpoint.contract, as_json=as_json)
        return
    endpoint, intake = with_secrets(inbox.sources[source].endpoint), inbox.settings.intake
    if edits and (body or handshake):
        raise click.UsageError(
            "--set works only with a sample: with --body edit the file; a handshake has no body to change"
        )
    target = url or f"http://{intake.host}:{port or intake.port}{endpoint.path}"
    if handshake:
        draft = _ask(endpoint, target, forge=forge)
    else:
        made = sample(endpoint.contract, kind or (NO_TYPE if body else None), ident, list(map(changes.read, edits)))
        if body:
            made = msgspec.structs.replace(made, body=body.read())
        else:
            _say(source, endpoint.contract, made)
        draft = _sign(endpoint, made, target, forge=forge)
    draft = _to(endpoint, draft, target)
    answers = run(_post(draft, rounds=2 if twice else 1, concurrency=concurrently))
    _report(answers, forge=forge, as_json=as_json)


# ── samples ──────────────────────────────────────────────────────────────────


def _list(contract: Contract, *, as_json: bool) -> None:
    types = listed(contract)
    if as_json:
        print_json(types)
        return
    for kind in types:
        click.echo(kind)
    if not types:
        status.print(f"{contract.title} has no samples: any --type gets a body with only id, type and time.")


def _say(source: str, contract: Contract, made: Sample) -> None:
    """Print where the body differs from what the provider would send."""
    if not made.real:
        close = f"; the nearest that has one is {made.nearest}" if made.nearest else ""
        more = f" (hookledger send {source} --list)" if listed(contract) else ""
        says = f"no sample for type {made.type}: sending a body with only id, type and time{close}{more}"
        status.print(says, markup=False)
    for path in made.added:
        status.print(f"--set {path}: the sample has no such field; added it", markup=False)


# ── signing ──────────────────────────────────────────────────────────────────


def _sign(endpoint: Endpoint, made: Sample, target: str, *, forge: bool) -> Draft:
    contract, key = _signer(endpoint, forge=forge)
    return delivery(
        contract,
        key,
        made.body,
        now=time.time(),
        event_id=made.id,
        event_type=made.type,
        url=_signed_url(endpoint, target),
        more_headers=made.headers,
    )


def _ask(endpoint: Endpoint, target: str, *, forge: bool) -> Draft:
    url = _signed_url(endpoint, target)
    token = secrets.token_hex(16) if forge else endpoint.verify_token
    asked = handshake_request(endpoint.contract, url, token=token, origins=endpoint.settings.origins, now=time.time())
    if not asked.handshake.signed:
        if forge and asked.handshake.token is None:
            raise ConfigError(f"--forge is not possible: {endpoint.contract.title} handshakes carry no proof")
        return asked.draft
    contract, key = _signer(endpoint, forge=forge)
    return contract.scheme.sign(key, asked.draft)


def _signer(endpoint: Endpoint, *, forge: bool) -> tuple[Contract, bytes]:
    """Return contract and key to sign with: the source's own, or with `forge` a wrong key."""
    contract, scheme = endpoint.contract, endpoint.contract.scheme
    with_own_key = getattr(scheme, "key_kind", None) is not None
    if not endpoint.secrets:
        if forge:
            raise ConfigError(
                f"--forge is not possible: source {endpoint.name!r} has no secret and accepts every delivery"
            )
        return contract, b"no-secret"
    now = time.time()
    valid = [secret for secret in endpoint.secrets if secret.expires_at is None or secret.expires_at > now]
    key = (valid or endpoint.secrets)[0].key
    if with_own_key and not forge and not getattr(scheme, "test_key", None):
        raise ConfigError(
            f"cannot sign as {contract.title}: only the provider has its private key; for local tests make one "
            f"with `hookledger providers {contract.name} --new-test-key test-key.pem`, "
            f'and set test_key = "file:test-key.pem" in '
            f"[sources.{endpoint.name}.options]"
        )
    if not forge:
        return contract, key
    if with_own_key:
        other = msgspec.structs.replace(scheme, test_key=new_test_key(scheme))  # type: ignore[type-var, arg-type]
        return msgspec.structs.replace(contract, scheme=other), key
    wrong = secrets.token_hex(32).encode()
    if getattr(scheme, "basic", False):
        wrong = base64.b64encode(b"forger:" + wrong)
    elif getattr(scheme, "paired", False):
        wrong = key.partition(b"\0")[0] + b"\0" + wrong
    return contract, wrong


# ── where to ─────────────────────────────────────────────────────────────────


def _signed_url(endpoint: Endpoint, target: str) -> str:
    """Return the URL as the provider would call it, with the target's query."""
    query = urlsplit(target).query
    base = endpoint.settings.public_url or target.partition("?")[0]
    return f"{base}?{query}" if query else base


def _to(endpoint: Endpoint, draft: Draft, target: str) -> Draft:
    """Return the draft addressed to the target, with the query that the scheme added."""
    query, headers = urlsplit(draft.url).query, dict(draft.headers)
    if endpoint.contract.needs_public_url and endpoint.settings.public_url is None:  # as a trusted proxy would
        parts = urlsplit(target)
        headers |= {b"x-forwarded-proto": parts.scheme, b"x-forwarded-host": parts.netloc}
    base = target.partition("?")[0]
    return msgspec.structs.replace(draft, url=f"{base}?{query}" if query else base, headers=headers)


async def _post(draft: Draft, *, rounds: int, concurrency: int) -> list[Sent]:
    import httpx2  # imported here: no other command needs it

    local = urlsplit(draft.url).hostname in LOOPBACK
    if not local and concurrency > 16:
        raise ConfigError("--concurrently above 16 is allowed only to this machine: load tests stay on loopback")
    answers: list[Sent] = []
    limits = httpx2.Limits(max_connections=concurrency)
    # A proxy from the environment does not lead to this machine.
    async with httpx2.AsyncClient(limits=limits, timeout=30, trust_env=not local) as client:

        async def one() -> Sent:
            response = await client.request(draft.method, draft.url, content=draft.body, headers=pairs(draft))
            return Sent(response.status_code, response.text)

        for _ in range(rounds):
            try:
                answers += await asyncio.gather(*(one() for _ in range(concurrency)))
            except httpx2.HTTPError as error:
                where = draft.url.partition("?")[0]  # the query may hold a secret
                raise Unavailable(
                    f"no answer from {where}: {error or type(error).__name__}; start `hookledger receive` or "
                    "`hookledger serve`, or give --url"
                ) from error
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
        status.print("[red]Unexpected answer from the receiver.[/]")
        if any(a.status == 401 for a in answers):
            status.print("Does the receiver have the same secret for this source?")
        raise SystemExit(exits.UNEXPECTED_ANSWER)
