"""Each requirement has a state that its tests support, and each tag names a requirement."""

import re

from tests.docs.test_reference import ROOT, generator

KNOWN = generator().known_requirements()
PROOFS = generator().proofs()


def test_every_number_is_described_once() -> None:
    assert list(KNOWN) == [f"R{number}" for number in range(1, 78)]


def test_tags_name_known_requirements() -> None:
    assert set(PROOFS) <= set(KNOWN)


def test_done_requirements_have_tests_and_unbuilt_ones_have_none() -> None:
    assert [name for name, entry in KNOWN.items() if entry.missing is None and not PROOFS[name]] == []
    assert [name for name, entry in KNOWN.items() if entry.missing == "" and PROOFS[name]] == []


def test_no_requirement_has_more_than_three_tests() -> None:
    assert {name: tests for name, tests in PROOFS.items() if len(tests) > 3} == {}


def test_every_tag_stands_above_its_test() -> None:
    """A tag anywhere else would be left out of the page."""
    written = 0
    for path in (ROOT / "tests").rglob("test_*.py"):
        written += sum(len(re.findall(r"R\d+", line)) for line in path.read_text().splitlines() if _is_tag(line))
    assert written == sum(map(len, PROOFS.values()))


def _is_tag(line: str) -> bool:
    return re.search(r"proves\sR\d", line) is not None
