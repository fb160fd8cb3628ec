"""Discord: interactions and webhook events of an application."""

from __future__ import annotations

import msgspec

from ..contract import Answer, Confirmed, Contract, Retries
from ..fields import body
from ..handshake import Handshake
from ..schemes.public_key import PublicKey
from ..schemes.times import Timestamp

CONFIRMED = Confirmed(
    signature="run",
    event="docs",
    handshake="docs",
    response="docs",
    retry="docs",
    reconcile="memory",
    sources=("discord-api-docs: webhook events, interactions", "discord-interactions 0.4.0"),
)
PROBED = "Discord sends wrong signatures on purpose, and removes the URL unless they get 401."
# Discord's own verifier does not check the time, so captured requests stay valid.
SCHEME = PublicKey(
    header=b"x-signature-ed25519",
    alg="ed25519",
    message="{ts}{body}",
    encoding="hex",
    key="hex",
    # Discord gives no advice and does not retry interactions; five minutes allow for clock skew.
    timestamp=Timestamp(header=b"x-signature-timestamp", tolerance=300),
)

CONTRACTS = (
    Contract(
        name="discord_interactions",
        title="Discord interactions",
        scheme=SCHEME,  # sent once, and void after 3 seconds
        secret="the application's public key, in hex",
        id=body("id"),
        type=(body("type"), body("data.name")),  # a number: 2 command, 3 component, 4 autocomplete, 5 modal
        object_id=(body("data.id"), body("data.custom_id")),
        # "Working on it": the handler edits the answer with the interaction's token, within 15 minutes.
        answer=Answer(200, b'{"type":5}', "application/json"),
        rejection=401,
        deadline=3,
        handshakes=(Handshake(method="POST", when=((body("type"), "1"),), signed=True, json=(("type", 1),)),),
        retries=Retries(automatic=False, hours=0, schedule="never", signs_each_attempt="yes", why="it is sent once"),
        confirmed=CONFIRMED,
        notes=(
            PROBED,
            "Every command is answered with a deferred message. If the user should see something immediately, and "
            "for components and autocompletion, which need another answer, do not use an inbox.",
        ),
    ),
    Contract(
        name="discord_events",
        title="Discord webhook events",
        # Retried for ten minutes, perhaps under the first signature.
        scheme=msgspec.structs.replace(SCHEME, timestamp=Timestamp(header=b"x-signature-timestamp", tolerance=900)),
        secret="the application's public key, in hex",
        # No id: the digest is of the type, the time in microseconds and what happened.
        type=(body("event.type"),),
        object_id=(body("event.data.id"), body("event.data.user.id"), body("event.data.user_id")),
        occurred_at=body("event.timestamp"),
        answer=Answer(204, b"", "application/json"),
        rejection=401,
        deadline=3,
        handshakes=(
            Handshake(
                method="POST",
                when=((body("type"), "0"),),
                signed=True,
                status=204,
                headers=(("content-type", "application/json"),),
            ),
        ),
        retries=Retries(
            automatic=True,
            hours=0.17,
            schedule="exponential, for up to 10 minutes",
            why="Discord does not say",
        ),
        confirmed=CONFIRMED,
        notes=(PROBED, "An outage of more than 10 minutes loses events, and there is no list of them."),
    ),
)
