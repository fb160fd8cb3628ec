"""What the supervisor does about a child without starting one."""

import subprocess
from pathlib import Path

import pytest

from hookledger.cli.supervise import Supervisor
from hookledger.store.sqlite import watch
from hookledger.store.sqlite.watch import LockWatch


@pytest.mark.parametrize("name", ["work", "operate"])
def test_who_holds_the_write_lock_for_too_long_is_killed(name: str, tmp_path: Path) -> None:  # proves R19
    supervisor = Supervisor({}, environment={}, lock_limit=1.0, grace=0.0)
    [file] = supervisor._watched(name, tmp_path).values()
    with subprocess.Popen(["sleep", "60"]) as child:
        supervisor._children[name] = child
        held = LockWatch(Path(file))
        held.locked()
        supervisor._end_if_frozen(name)
        assert child.poll() is None, "it was taken a moment ago"
        held._put(watch.WRITER, 1.0)
        supervisor._end_if_frozen(name)
        assert child.wait(30) == -9
    [again] = supervisor._watched(name, tmp_path).values()
    assert LockWatch(Path(again)).held_for() == 0.0, "its successor does not hold it"
