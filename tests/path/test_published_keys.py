"""Providers whose keys are published, over HTTP: fetched once from a pinned host over real TLS; and a subscription
that confirms itself."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from hookledger import State
from hookledger.receive.keyring import Fetched
from tests.asgi_client import Site
from tests.path.conftest import MakeSite
from tests.path.served import serving
from tests.unit.https_server import Server, answer, contexts

HOST = "sns.eu-west-1.amazonaws.com"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
CERTIFICATE = f"https://{HOST}/SimpleNotificationService-{'0a' * 16}.pem"
CONFIRM = f"https://{HOST}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token={'ab' * 32}"


@cache
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def certificate(host: str = "sns.amazonaws.com") -> bytes:
    """As SNS publishes its own, for `key`."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "A made-up authority")])
    made = (
        x509.CertificateBuilder(issuer_name=issuer, subject_name=name, public_key=key().public_key(), serial_number=7)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    )
    return made.sign(key(), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def signed(**fields: str) -> bytes:
    content = {
        "Type": "Notification",
        "MessageId": "m-1",
        "TopicArn": TOPIC,
        "Message": "made up",
        "Timestamp": datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "SignatureVersion": "2",
        "SigningCertURL": CERTIFICATE,
        **fields,
    }
    names = ("Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    text = "".join(f"{name}\n{content[name]}\n" for name in names if name in content)
    made = key().sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return json.dumps({**content, "Signature": base64.b64encode(made).decode()}).encode()


def confirmation(**fields: str) -> bytes:
    return signed(Type="SubscriptionConfirmation", Token="ab" * 32, **{"SubscribeURL": CONFIRM, **fields})


@pytest.fixture
async def amazon(tmp_path: Path) -> AsyncIterator[tuple[Server, Fetched]]:
    serving_tls, believing = contexts(tmp_path, [HOST])
    server = Server()
    server.answer = answer(certificate())
    async with await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=serving_tls) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield server, Fetched(connect={HOST: ("127.0.0.1", port)}, verify=believing)


@pytest.fixture
async def site(site_on: MakeSite, sqlite_url: str, amazon: tuple[Server, Fetched]) -> Site:
    made = await site_on(sqlite_url)
    made.inbox.keyring = amazon[1]
    made.inbox.source("sns", provider="aws_sns", secrets=[TOPIC])
    return made


def paths(server: Server) -> list[str]:
    return [asked.split(b" ")[1].decode() for asked in server.asked]


async def test_the_certificate_is_fetched_once(site: Site, amazon: tuple[Server, Fetched]) -> None:
    server, _ = amazon
    async with serving(site) as made:
        bodies = [signed(MessageId=f"m-{n}") for n in range(20)]
        answers = await asyncio.gather(*(made.ask("POST", "/sns", body) for body in bodies))
        again = await made.ask("POST", "/sns", bodies[3])
    assert [a.status for a in answers] == [202] * 20
    assert again.status == 200
    assert len(server.asked) == 1
    assert len(await site.events()) == 20


async def test_what_is_not_amazons_is_refused(site: Site, amazon: tuple[Server, Fetched]) -> None:
    server, _ = amazon
    body = signed()
    async with serving(site) as made:
        assert (await made.ask("POST", "/sns", body.replace(b"made up", b"made  up"))).status == 401
        for url in (
            "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-" + "0a" * 16 + ".pem",
            "https://sns.eu-west-1.amazonaws.com.evil.example/SimpleNotificationService-" + "0a" * 16 + ".pem",
            "https://sns.s3.amazonaws.com/SimpleNotificationService-" + "0a" * 16 + ".pem",
            "https://sns.eu-west-1.amazonaws.com/../SimpleNotificationService-" + "0a" * 16 + ".pem",
            "https://user@sns.eu-west-1.amazonaws.com/SimpleNotificationService-" + "0a" * 16 + ".pem",
        ):
            assert (await made.ask("POST", "/sns", signed(SigningCertURL=url))).status in (400, 401)
        other = signed(TopicArn=TOPIC.replace("123456789012", "999999999999"))
        assert (await made.ask("POST", "/sns", other)).status == 401
        stale = signed(Timestamp="2024-01-01T00:00:00.000Z")
        assert (await made.ask("POST", "/sns", stale)).status == 401
    assert set(paths(server)) <= {"/SimpleNotificationService-" + "0a" * 16 + ".pem"}
    assert await site.events() == []


async def test_an_outage_of_the_provider_is_no_rejection(site: Site, amazon: tuple[Server, Fetched]) -> None:
    server, _ = amazon
    server.answer = answer(b"", "503 Service Unavailable")
    async with serving(site) as made:
        refused = await made.ask("POST", "/sns", signed())
        assert (refused.status, "retry-after" in refused.headers) == (503, True)
    assert await site.events() == []


async def test_a_subscription_confirms_itself(site: Site, amazon: tuple[Server, Fetched]) -> None:
    server, _ = amazon

    async def amazons(writer: Any) -> None:
        confirming = b"Action=ConfirmSubscription" in server.asked[-1]
        await answer(b"<ok/>" if confirming else certificate())(writer)

    server.answer = amazons
    async with serving(site) as made:
        good = await made.ask("POST", "/sns", confirmation())
        assert good.status == 200
        assert paths(server)[-1].startswith("/?Action=ConfirmSubscription")
        count = len(server.asked)
        for url in ("https://evil.example/?Action=ConfirmSubscription", CONFIRM.replace("https", "http")):
            assert (await made.ask("POST", "/sns", confirmation(SubscribeURL=url, MessageId="m-2"))).status == 400
        forged = confirmation().replace(b"SubscriptionConfirmation", b"SubscriptionConfirmatioN")
        assert (await made.ask("POST", "/sns", forged)).status in (400, 401)
        assert len(server.asked) == count
    [event] = await site.events()
    assert (event.type, event.state) == ("SubscriptionConfirmation", State.PENDING)


async def test_a_confirmation_that_fails_is_asked_again(site: Site, amazon: tuple[Server, Fetched]) -> None:
    server, _ = amazon

    async def failing(writer: Any) -> None:
        confirming = b"Action=ConfirmSubscription" in server.asked[-1]
        await (answer(b"", "500 Oops") if confirming else answer(certificate()))(writer)

    server.answer = failing
    async with serving(site) as made:
        assert (await made.ask("POST", "/sns", confirmation())).status == 503
        counts = site.inbox.sources["sns"].endpoint.counts
        assert (counts.unavailable, counts.unrecorded) == (1, 0), "one request is counted once"
    assert await site.events() == []
