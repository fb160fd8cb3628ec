"""What the costliest body of a MiB takes of the CPU, for every contract, before and after the proof.

`python -m benchmarks.strangers [CONTRACT …]` prints the table of docs/explanation/costly-bodies.md.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain

from tests.providers.costly import (
    MIB,
    NOW,
    authentic,
    bodies,
    bombs,
    cpu,
    forged,
    provider,
    signed,
    stranger,
    unproved,
    yardstick,
)
from tests.providers.made import FIRST, contract_of, sent

from hookledger.providers.catalogue import contracts

Cost = tuple[float, str]


def before(name: str) -> Cost:
    """The costliest forgery."""
    example, endpoint = FIRST[name], stranger(FIRST[name])
    requests = ((label, forged(example, body, text)) for label, body, text in bodies(contract_of(name), MIB))
    everything = chain(requests, bombs(endpoint, sent(example, NOW)))
    return costliest((label, partial(unproved, endpoint, request)) for label, request in everything)


def after(name: str) -> Cost:
    """The costliest authentic request."""
    example, endpoint = FIRST[name], provider(FIRST[name])
    requests = ((label, signed(example, body, text)) for label, body, text in bodies(contract_of(name), MIB))
    return costliest((label, partial(authentic, endpoint, request)) for label, request in requests if request)


def costliest(steps: Iterable[tuple[str, Callable[[], object]]]) -> Cost:
    worst: Cost = (0.0, "")
    for label, step in steps:
        worst = max(worst, (cpu(step, worst[0]), label))
    return worst


def main() -> None:
    gc.collect()
    gc.freeze()
    print(f"An ordinary body takes the standard library {yardstick(MIB) * 1000:.1f} ms.\n")
    print("| contract | before the proof, ms | by | after it, ms | by |\n|---|---:|---|---:|---|")
    for name in sys.argv[1:] or sorted(contracts()):
        (first, by), (second, then) = before(name), after(name)
        print(f"| `{name}` | {first * 1000:.1f} | {by} | {second * 1000:.0f} | {then} |", flush=True)


if __name__ == "__main__":
    main()
