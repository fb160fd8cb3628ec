"""The reference pages say what the code says."""

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", generator().PAGES)
def test_page_is_what_the_code_says(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text()
    assert written == generator().PAGES[name](), f"run: python docs/generate.py (docs/reference/{name} has drifted)"


def test_every_link_in_the_documents_leads_somewhere() -> None:
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


CONFIGURED = {"source", "handler", "effect", "downstream"}
"""Labels whose values the configuration or the application declares."""


def test_the_values_of_every_other_label_are_listed() -> None:
    from hookledger.observe.metrics.table import TABLE

    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    open_labels = {(one.name, label) for one in TABLE for label in one.labels if label not in CONFIGURED}
    assert {(name, label) for name, label in open_labels if f"| `{label}` of `{name}` | `" not in page} == set()


def tables(kind: Any) -> set[type[msgspec.Struct]]:
    """The tables of settings inside a type, and itself."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {kind}.union(*(tables(field) for field in get_type_hints(kind).values()))
    return set().union(*(tables(one) for one in get_args(kind)))


def test_every_table_of_settings_is_on_the_page() -> None:
    from hookledger.config import Config

    page, first_line = (ROOT / "docs" / "reference" / "settings.md").read_text(), generator()._first_line
    found = tables(Config)
    assert len(found) > 15
    assert [kind.__name__ for kind in found if f"\n\n{first_line(kind)}\n\n| key |" not in page] == []


def test_every_option_of_a_guard_is_on_its_page() -> None:
    from hookledger.contrib.redis import Guard
    from hookledger.idempotency.declare import GuardOptions

    options = {
        "idempotency-keys": set(GuardOptions.__annotations__),
        "redis": set(inspect.signature(Guard).parameters) - {"client"},
    }
    for name, known in options.items():
        page = (ROOT / "docs" / "how-to" / f"{name}.md").read_text()
        assert {one for one in known if not re.search(rf"\b{one}(`|=)", page)} == set(), name


def test_every_setting_and_option_is_explained() -> None:
    for name in ("settings.md", "command-line.md"):
        lines = (ROOT / "docs" / "reference" / name).read_text().splitlines()
        rows = [line for line in lines if line.startswith("| `")]
        assert rows
        assert not [row for row in rows if row.endswith("|  |")]
