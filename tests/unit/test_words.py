"""scripts/words.py finds old words in each kind of text, and only there."""

import runpy
from pathlib import Path
from typing import Any

import pytest

WORDS: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "scripts/words.py"))

MODULE = '''"""The scribe writes."""
TAKE_IN = "for  ever"  # anew
class Outcast: ...
def record(crowd: int) -> None:
    """Nothing is bent; a bounced ball is not a match."""
    print(f"in {crowd} trouble, somebody waits")
'''

SQL = "SELECT pulse FROM t WHERE a = 'at once' -- whoever\n"

FOUND = {
    "README.md": [("docs", 3, "in trouble")],
    "CHANGELOG.md": [("docs", 3, "mend")],
    "src/hookledger/one.py": [
        ("comments", 1, "scribe"),
        ("comments", 2, "anew"),
        ("names", 2, "take in"),
        ("names", 3, "outcast"),
        ("names", 4, "crowd"),
        ("strings", 2, "for ever"),
        ("strings", 6, "somebody"),
    ],
    "src/hookledger/one.sql": [("comments", 1, "whoever"), ("names", 1, "pulse"), ("strings", 1, "at once")],
    "tests/test_odd.py": [("names", 1, "odd"), ("names", 1, "nobody")],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    texts = {
        "README.md": "# One\n\nTwo: in\ntrouble.\n",
        "CHANGELOG.md": "## Unreleased\n\nmend\n\n## 0.1\n\nodd\n",
        "src/hookledger/one.py": MODULE,
        "src/hookledger/one.sql": SQL,
        "tests/test_odd.py": "def test_nobody() -> None:\n    anew = 'anew'\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", FOUND)
def test_old_words_are_found_by_kind(root: Path, name: str) -> None:
    found = [(one.kind, one.line, one.word) for one in WORDS["search"](root, [name])]
    assert sorted(found) == sorted(FOUND[name])


def test_more_old_words_than_the_limit_fail(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = list(WORDS["search"](root))
    limits = WORDS["LIMITS"]
    limits.update(dict.fromkeys(limits, 100))
    assert WORDS["report"](found) == 0
    limits["docs"] = 1
    assert WORDS["report"](found) == 1
    assert "docs: more than 1" in capsys.readouterr().err


def test_the_allow_list_stays_short() -> None:
    assert len(WORDS["ALLOWED"]) <= 20
