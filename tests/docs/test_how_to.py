"""The code in docs/how-to runs."""

import re
from pathlib import Path
from typing import Any

import pytest

from hookledger import Inbox

ALL = sorted((Path(__file__).resolve().parents[2] / "docs" / "how-to").glob("*.md"))
PAGES = [page for page in ALL if "```python" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_code_runs(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRIPE_WEBHOOK_SECRET", "GITHUB_WEBHOOK_SECRET", "SQUARE"):
        monkeypatch.setenv(name, "whsec_made_up_for_the_docs")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    inbox: Inbox = names["inbox"]
    inbox.effects.verify()
    assert inbox.routes.handles(), "each page ends with a handler"
