"""Files as effects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hookledger import write_file

OP = SimpleNamespace(key="hl_0123")


# proves R33
def test_written_whole_under_the_name_of_the_effect(tmp_path: Path) -> None:
    path = write_file(OP, tmp_path, "first", suffix=".txt")
    assert path == tmp_path / "hl_0123.txt"
    assert write_file(OP, tmp_path, b"second", suffix=".txt") == path
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".hl_0123.deadbeef.part").write_bytes(b"half")
    other = tmp_path / ".hl_9999.deadbeef.part"
    other.write_bytes(b"somebody else's")
    path = write_file(OP, tmp_path, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, other])


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = write_file(OP, tmp_path, b"first")
    with pytest.raises(TypeError):
        write_file(OP, tmp_path, object())  # type: ignore[arg-type]
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        write_file(OP, tmp_path / "nowhere", b"")


@pytest.mark.parametrize("suffix", ["/../x", "a/b", "\0"])
def test_a_suffix_cannot_leave_the_folder(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ValueError, match="suffix"):
        write_file(OP, tmp_path, b"", suffix=suffix)
