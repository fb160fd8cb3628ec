"""Parent of a service's processes, run as a program of its own: it outlives the tests to clean up after them.

Its standard input is a pipe from the process that owns the service. However that process ends (kill -9
included), the pipe closes; the keeper then ends its child and removes the service's directory. Because the
keeper is the parent, a signal can never hit a stranger that was given the same process id: an id stays taken
until its parent has waited for it.

One JSON object per line in, one JSON value per line out:

    {"do": "start", "argv": [...]}      the process id
    {"do": "signal", "number": 2}       null; nothing happens when the child has already ended
    {"do": "wait", "seconds": 1.5}      its exit status, or null while it runs

It does not survive its own kill -9, and it does not pursue the grandchildren of a child that was killed.
"""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any


class Keeper:
    def __init__(self, directory: str, account: tuple[int, int] | None) -> None:
        self.directory = Path(directory)
        self.account: dict[str, Any] = {}
        if account is not None:
            self.account = {"user": account[0], "group": account[1], "extra_groups": []}
        self.child: subprocess.Popen[bytes] | None = None

    def obey(self, order: dict[str, Any]) -> int | None:
        match order:
            case {"do": "start", "argv": argv}:
                return self.start(argv)
            case {"do": "signal", "number": number} if self.child is not None:
                self.child.send_signal(number)  # Popen looks first whether the child has ended
                return None
            case {"do": "wait", "seconds": seconds} if self.child is not None:
                return self.wait(seconds)
        raise ValueError(f"not an order: {order}")

    def start(self, argv: list[str]) -> int:
        with (self.directory / "log").open("ab") as log:
            self.child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                **self.account,
            )
        return self.child.pid

    def wait(self, seconds: float) -> int | None:
        assert self.child is not None
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def bury(self) -> None:
        if self.child is not None:
            for number in (signal.SIGQUIT, signal.SIGKILL):
                self.child.send_signal(number)
                if self.wait(10) is not None:
                    break
        shutil.rmtree(self.directory, ignore_errors=True)


def main() -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, leave)
    keeper = Keeper(**json.loads(sys.argv[1]))
    try:
        for line in sys.stdin:
            print(json.dumps(keeper.obey(json.loads(line))), flush=True)
    except BrokenPipeError:
        pass  # the owner died before it read the answer
    finally:
        keeper.bury()


if __name__ == "__main__":
    main()
