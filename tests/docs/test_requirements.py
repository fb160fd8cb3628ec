"""Each requirement has a state that its tests support, and each tag names a requirement."""

import re

import pytest

from tests.docs.test_reference import ROOT, generator

KNOWN = generator().known_requirements()
Proofs = dict[str, list[str]]


@pytest.fixture(scope="module")
def proofs() -> Proofs:
    """By requirement. Parses every test: too much for each process that only collects this file."""
    found: Proofs = generator().proofs()
    return found


def test_every_number_is_described_once() -> None:
    assert list(KNOWN) == [f"R{number}" for number in range(1, 78)]


def test_tags_name_known_requirements(proofs: Proofs) -> None:
    assert set(proofs) <= set(KNOWN)


def test_done_requirements_have_tests_and_unbuilt_ones_have_none(proofs: Proofs) -> None:
    assert [name for name, entry in KNOWN.items() if entry.missing is None and not proofs[name]] == []
    assert [name for name, entry in KNOWN.items() if entry.missing == "" and proofs[name]] == []


def test_no_requirement_has_more_than_three_tests(proofs: Proofs) -> None:
    assert {name: tests for name, tests in proofs.items() if len(tests) > 3} == {}


def test_every_tag_stands_above_its_test(proofs: Proofs) -> None:
    """A tag anywhere else would be left out of the page."""
    written = 0
    for path in (ROOT / "tests").rglob("test_*.py"):
        written += sum(len(re.findall(r"R\d+", line)) for line in path.read_text().splitlines() if _is_tag(line))
    assert written == sum(map(len, proofs.values()))


def _is_tag(line: str) -> bool:
    return re.search(r"proves\sR\d", line) is not None
