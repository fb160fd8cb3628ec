"""Providers' own APIs, as far as listers ask them: real HTTP on loopback, in the shapes that the providers document.

It shares no code with what it tests. What goes wrong with the next requests is scripted by `trouble`.
"""

import hashlib
import hmac
import json
import time
from collections import deque
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.services.loopback import Handler, Service, started

TOKEN = "made_up_token_of_the_tests"
BAD = "not json"
HUGE = "huge"
HANG = "hang"
LOOP = "loop"


class Apis(Service):
    """Stripe's events, GitHub's deliveries, Svix's messages and Shopify's orders, all at one address."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.stripe: list[dict[str, Any]] = []
        """The newest first, as all of these."""
        self.github: list[dict[str, Any]] = []
        self.svix: list[dict[str, Any]] = []
        self.shopify: list[dict[str, Any]] = []
        self.page = 100
        self.asked: list[str] = []
        """Method and path of each request."""
        self.resent: list[int] = []
        self.trouble: deque[int | str | None] = deque()
        """What the next requests get: a status, or one of the words above; None, or nothing left: an answer."""
        self.retry_after: str | None = None

    # ── filling them ──

    def sent_by_stripe(self, ident: str, kind: str = "invoice.paid", *, at: float | None = None) -> dict[str, Any]:
        created = int(time.time() - 3600 if at is None else at)
        event = {
            "id": ident,
            "object": "event",
            "api_version": "2024-06-20",
            "created": created,
            "data": {"object": {"id": f"in_{ident}", "object": "invoice"}},
            "livemode": False,
            "pending_webhooks": 1,
            "request": {"id": None, "idempotency_key": None},
            "type": kind,
        }
        self.stripe.insert(0, event)
        return event

    def sent_by_github(
        self, number: int, payload: dict[str, Any], secret: str, *, kind: str = "push", at: float | None = None
    ) -> bytes:
        """The bytes that were signed; the API writes the payload without blanks, as those are."""
        body = json.dumps(payload, separators=(",", ":")).encode()
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        guid = f"72d3162e-cc78-11e3-81ab-{number:012d}"
        moment = datetime.fromtimestamp(time.time() - 3600 if at is None else at, UTC)
        self.github.insert(
            0,
            {
                "id": number,
                "guid": guid,
                "delivered_at": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "redelivery": False,
                "duration": 0.27,
                "status": "Invalid HTTP Response: 502",
                "status_code": 502,
                "event": kind,
                "action": payload.get("action"),
                "installation_id": None,
                "repository_id": 1,
                "request": {
                    "headers": {
                        "X-GitHub-Delivery": guid,
                        "X-GitHub-Event": kind,
                        "X-Hub-Signature-256": f"sha256={signature}",
                        "content-type": "application/json",
                    },
                    "payload": payload,
                },
            },
        )
        return body

    def sent_by_svix(self, ident: str, payload: dict[str, Any], *, at: float | None = None) -> None:
        moment = datetime.fromtimestamp(time.time() - 3600 if at is None else at, UTC)
        self.svix.insert(
            0,
            {
                "id": ident,
                "eventType": payload.get("type", "test"),
                "eventId": None,
                "channels": None,
                "payload": payload,
                "timestamp": moment.isoformat(),
            },
        )

    def changed_at_shopify(self, number: int, *, at: float | None = None) -> str:
        moment = datetime.fromtimestamp(time.time() - 3600 if at is None else at, UTC)
        gid = f"gid://shopify/Order/{number}"
        self.shopify.append({"id": gid, "updatedAt": moment.strftime("%Y-%m-%dT%H:%M:%SZ")})
        return gid


class _Handler(Handler):
    service: Apis

    def reply(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.service.asked.append(f"{self.command} {parts.path}")
        presented = self.headers.get("x-shopify-access-token") or (self.headers.get("authorization") or "")[7:]
        trouble = self.service.trouble.popleft() if self.service.trouble else None
        if presented != TOKEN:
            self.answer(401, {"error": {"message": "Invalid API Key provided"}})
        elif trouble == BAD:
            self.answer(200, b'{"data": [')
        elif trouble == HUGE:
            self.answer(200, b" " * 2_000_000)
        elif trouble == HANG:
            self.service.gate.wait(60)
        elif isinstance(trouble, int):
            more = {"Retry-After": self.service.retry_after} if self.service.retry_after else {}
            more |= {"Location": f"{self.service.url}/elsewhere"} if 300 <= trouble < 400 else {}
            self.answer(trouble, {"message": "no"}, **more)
        elif parts.path == "/v1/events":
            self._stripe(query, loop=trouble == LOOP)
        elif parts.path.endswith("/graphql.json"):
            self._shopify(json.loads(body))
        elif parts.path.startswith("/api/v1/app/"):
            self._svix(query, loop=trouble == LOOP)
        elif "/deliveries" in parts.path:
            self._github(parts.path, query, loop=trouble == LOOP)
        else:
            self.answer(404, {"message": "Not Found"})

    def _stripe(self, query: dict[str, str], *, loop: bool) -> None:
        low, high = int(query["created[gte]"]), int(query["created[lt]"])
        found = [event for event in self.service.stripe if low <= event["created"] < high]
        names = [event["id"] for event in found]
        start = names.index(query["starting_after"]) + 1 if "starting_after" in query and not loop else 0
        size = min(self.service.page, int(query["limit"]))
        page = found[start : start + size]
        more = loop or start + size < len(found)
        answer = {"object": "list", "data": page, "has_more": more, "url": "/v1/events"}
        self.answer(200, json.dumps(answer, indent=2).encode())  # as Stripe writes it

    def _github(self, path: str, query: dict[str, str], *, loop: bool) -> None:
        last = path.rsplit("/", 1)[1]
        if last == "attempts":
            self.service.resent.append(int(path.rsplit("/", 2)[1]))
            self.answer(202, {})
        elif last != "deliveries":
            self.answer(200, next(one for one in self.service.github if str(one["id"]) == last))
        else:
            start = int(query.get("cursor", "v1_0")[3:])
            size = min(self.service.page, int(query["per_page"]))
            some = self.service.github[start : start + size]
            page = [{name: one[name] for name in one if name != "request"} for one in some]
            following = start if loop else start + size
            link = f'<{self.service.url}{path}?per_page={size}&cursor=v1_{following}>; rel="next"'
            more = {"Link": link} if loop or following < len(self.service.github) else {}
            self.answer(200, page, **more)

    def _svix(self, query: dict[str, str], *, loop: bool) -> None:
        before = datetime.fromisoformat(query["before"])
        found = [one for one in self.service.svix if datetime.fromisoformat(one["timestamp"]) < before]
        start = int(query.get("iterator", "0"))
        size = min(self.service.page, int(query["limit"]))
        done = start + size >= len(found) and not loop
        iterator = str(start if loop else start + size)
        page = found[start : start + size]
        self.answer(200, {"data": page, "iterator": iterator, "prevIterator": None, "done": done})

    def _shopify(self, asked: dict[str, Any]) -> None:
        if "orders(" not in asked["query"]:
            self.answer(200, {"errors": [{"message": "Field doesn't exist on type 'QueryRoot'"}]})
            return
        start, size = int(asked["variables"]["after"] or 0), min(self.service.page, asked["variables"]["first"])
        page = self.service.shopify[start : start + size]
        info = {"hasNextPage": start + size < len(self.service.shopify), "endCursor": str(start + size)}
        self.answer(200, {"data": {"orders": {"nodes": page, "pageInfo": info}}})


def running() -> AbstractContextManager[Apis]:
    return started(Apis())
