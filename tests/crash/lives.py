"""`hookledger work`, again and again: whenever one is killed, the next is there at once.

    python -m tests.crash.lives APPLICATION

Everything is imported before each fork, because a worker that is killed at its first step spends most of its life
with imports. Ends when a worker ends by itself; if this process is killed, its worker is told so by a closed pipe.
"""

import importlib
import os
import sys

from hookledger.cli import cli
from hookledger.cli.supervise import PARENT_PIPE


def main(application: str) -> int:
    for module in (application, "uvloop", "structlog", "asyncpg"):
        importlib.import_module(module)
    read, write = os.pipe()
    os.environ[PARENT_PIPE] = str(read)
    while True:
        child = os.fork()
        if child == 0:
            os.close(write)
            print("== a new life", file=sys.stderr, flush=True)
            cli(["work"])  # and exits
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
