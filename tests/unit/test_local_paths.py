"""The path below where the intake is mounted, and the path as its sender called it."""

import asyncio

import pytest

from hookledger.receive.request import AsgiUpload, Limits, Message, Reader, Scope, local_paths


@pytest.mark.parametrize(
    ("root", "path", "wanted"),
    [
        ("", "/stripe", ["/stripe"]),
        ("/hooks", "/hooks/stripe", ["/stripe", "/hooks/stripe"]),
        ("/hooks", "/stripe", ["/stripe"]),
        ("/hooks/", "/hooks/stripe", ["/stripe", "/hooks/stripe"]),
        ("/hooks", "/hooks", ["", "/hooks"]),
        ("/hooks", "/hooksx/stripe", ["/hooksx/stripe"]),
        ("/api/hooks", "/hooks/stripe", ["/stripe", "/hooks/stripe"]),
        ("/api/hooks", "/api/hooks/stripe", ["/stripe", "/api/hooks/stripe"]),
        ("/api//hooks", "/hooks/stripe", ["/stripe", "/hooks/stripe"]),
        ("/a/a", "/a/a/stripe", ["/stripe", "/a/stripe", "/a/a/stripe"]),
    ],
)
def test_what_the_path_may_be(root: str, path: str, wanted: list[str]) -> None:
    assert list(local_paths({"path": path, "root_path": root})) == wanted


@pytest.mark.parametrize("path", ["/api/hooks/stripe", "/hooks/stripe", "/stripe"])
async def test_the_path_that_was_called(path: str) -> None:
    """It may be signed, and a proxy or framework may have taken its front away."""
    scope: Scope = {"method": "POST", "path": path, "root_path": "/api/hooks", "headers": []}

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    loop = asyncio.get_running_loop()
    request = await Reader(Limits(), loop).read(scope, "/stripe", receive, 100, AsgiUpload(loop))
    assert (request.path, request.body) == ("/api/hooks/stripe", b"{}")
