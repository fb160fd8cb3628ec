"""The code of docs/how-to/logs-and-traces.md runs, each part in a separate process, which it sets up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "logs-and-traces.md"
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
RUN = """
import asyncio, json
from app import inbox
from tests.asgi_client import Site, stripe_event

async def main():
    await inbox.migrate()
    site = Site(inbox)
    for _ in range(2):
        await site.deliver(stripe_event(), headers=[("X-Request-Id", "req-1")])
    await site.work()
    await inbox.asgi.stop()

asyncio.run(main())
"""


def run(folder: Path, block: str) -> str:
    (folder / "app.py").write_text(block)
    variables = {**os.environ, "STRIPE_WEBHOOK_SECRET": "whsec_made_up", "PYTHONPATH": f"{folder}:{ROOT}"}
    ended = subprocess.run(
        [sys.executable, "-c", RUN], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


def block_with(words: str) -> str:
    [found] = [block for block in BLOCKS if words in block]
    return found


def test_json(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in run(tmp_path, block_with("JSONRenderer")).splitlines()]
    [own] = [line for line in lines if line["event"] == "crediting"]
    assert (own["event_key"], own["correlation_id"], own["handler"]) == ("evt_1", "req-1", "paid")


@pytest.mark.parametrize("spans", [("receive stripe", 2), ("process stripe", 1), ("effect charge", 1)])
def test_traces(tmp_path: Path, spans: tuple[str, int]) -> None:
    assert run(tmp_path, block_with("ConsoleSpanExporter")).count(f'"name": "{spans[0]}"') == spans[1]


def test_sentry(tmp_path: Path) -> None:
    found = "[event['logentry']['message'], event['extra']['event_key']]"
    keep = f"\n\ndef keep(event, hint):\n    print(json.dumps({found}))\n"
    block = block_with("sentry_sdk.init").replace("sentry_sdk.init(", "sentry_sdk.init(before_send=keep, ", 1)
    block = block.replace("import sentry_sdk\n", f"import json\nimport sentry_sdk\n{keep}\n", 1)
    block = block.replace('os.environ.get("SENTRY_DSN")', '"https://key@sentry.invalid/1"')
    assert '["handler failed", "evt_1"]' in run(tmp_path, block)


def test_the_level_of_one_logger(tmp_path: Path) -> None:
    level = block_with('getLogger("hookledger.events")')
    said = run(tmp_path, f"{level}\n{block_with('JSONRenderer')}")
    messages = [json.loads(line)["event"] for line in said.splitlines()]
    assert messages == [
        "delivery accepted",
        "delivery duplicate",
        "event claimed",
        "crediting",
        "attempt ended",
    ]
