"""examples/answers as real processes: each command once, and both of its deliveries get the same answer."""

import os
import subprocess
import sys
from pathlib import Path

from tests.services.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples/answers"


def test_the_show_runs_and_counts_two_deploys() -> None:
    ports = {"PORT": str(free_port()), "OPERATOR_PORT": str(free_port())}
    ended = subprocess.run(
        [sys.executable, "show_deploys.py"],
        cwd=EXAMPLE,
        env={**os.environ, **ports, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "deploys: [(1, 'production', 0), (2, 'production', 1)]" in ended.stdout
    assert '200 {"response_type":"in_channel","text":"deploy 1 to production"}' in ended.stdout
    assert "usage: /deploy" in ended.stdout
    assert '200 {"type":8,"data":{"choices":[{"name":"production","value":"production"}]}}' in ended.stdout
    assert "it is approved already" in ended.stdout
