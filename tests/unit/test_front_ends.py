"""Front ends call the functions of `hookledger.operate`, and nothing below them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hookledger

ROOT = Path(hookledger.__file__).parent


def reached(folder: str) -> Iterator[str]:
    """Where a module of this folder takes something from a store: `context.store.pauses`."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
                holder = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id
                if holder == "store":
                    yield f"{path.relative_to(ROOT)}: store.{node.attr}"


def test_no_front_end_uses_the_store() -> None:
    opens_it = "operate/api/listener.py: store.health"
    assert [*reached("cli"), *reached("operate/api")] == [opens_it]


def test_the_functions_of_operate_do() -> None:
    """So the look above finds what it looks for."""
    assert len(list(reached("operate"))) > 50
