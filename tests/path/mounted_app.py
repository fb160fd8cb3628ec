"""One inbox, mounted in every way that applications mount: the header `x-app` says which of them is asked."""

import os
from typing import Any

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from hookledger import Inbox
from hookledger.config import decode

inbox = Inbox(os.environ["HOOKLEDGER_DATABASE"], settings=decode({"intake": {"limits": {"seconds": "500ms"}}}))
inbox.source("stripe", provider="stripe", secrets=[os.environ["SECRET"]])
inbox.source("nested", provider="stripe", secrets=[os.environ["SECRET"]], path="/hooks/deeper")
inbox.source("again", provider="stripe", secrets=[os.environ["SECRET"]], path="/hooks")


class Eats:
    """Reads the body and hands on what is left: nothing, or a body of no bytes."""

    def __init__(self, app: Any, *, leaves: bool) -> None:
        self._app = app
        self._leaves = leaves

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass

        async def empty() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        await self._app(scope, empty if self._leaves else receive, send)


class Looks(BaseHTTPMiddleware):
    """As Starlette lets middlewares look at a body."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        await request.body()
        return await call_next(request)


def fastapi(**options: Any) -> FastAPI:
    app = FastAPI(**options)
    app.mount("/hooks", inbox.asgi)
    return app


def starlette(*middleware: Middleware) -> Starlette:
    return Starlette(routes=[Mount("/hooks", inbox.asgi)], middleware=middleware)


APPS: dict[str, Any] = {
    "alone": inbox.asgi,
    "starlette": starlette(),
    "root": Starlette(routes=[Mount("/", inbox.asgi)]),
    "nested": Starlette(routes=[Mount("/v1", routes=[Mount("/hooks", inbox.asgi)])]),
    "fastapi": fastapi(),
    "proxied": fastapi(root_path="/api"),
    "proxied-slash": fastapi(root_path="/api/"),
    "looks": starlette(Middleware(Looks)),
    "eats": Eats(starlette(), leaves=False),
    "empties": Eats(starlette(), leaves=True),
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        await inbox.asgi(scope, receive, send)
        return
    name = dict(scope["headers"]).get(b"x-app", b"alone").decode()
    await APPS[name](scope, receive, send)
