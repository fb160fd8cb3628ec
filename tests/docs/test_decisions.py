"""Decision records have one form, fit a page, and are found by what names them."""

import re

from tests.docs.test_reference import ROOT

FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("0*.md"))


def test_records_have_context_decision_and_consequences_on_one_page() -> None:
    for record in RECORDS:
        text = record.read_text()
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], record
        assert len(text.splitlines()) <= 45, record
        assert text.startswith(f"# {record.name[:4]}: "), record


def test_the_index_lists_every_record_by_its_title() -> None:
    titles = [f"- [{record.read_text().splitlines()[0][2:]}]({record.name})" for record in RECORDS]
    listed = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("- ")]
    assert listed == titles


def test_every_record_that_is_named_exists() -> None:
    numbers = {record.name[:4] for record in RECORDS}
    named: dict[str, str] = {}
    for folder in ("src", "tests", "docs", "benchmarks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".sql", ".md"):
                named |= {number: str(path) for number in re.findall(r"[Dd]ecision (\d{4})\b", path.read_text())}
    assert {number: path for number, path in named.items() if number not in numbers} == {}
