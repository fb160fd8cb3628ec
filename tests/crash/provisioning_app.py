"""The application of examples/provisioning, word for word, in a process that kills itself where it is told to.

CRASHES names a folder with one file for each death: `POINT@EFFECT@KEY`. Whoever reaches that point of that effect
removes the file and kills the process (SIGKILL), so that each happens once. Nothing in the example knows of this.
"""

import os
import signal
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

from hookledger import Inbox
from hookledger.store.postgres.ledger import PostgresLedger
from hookledger.store.postgres.transaction import PostgresTransaction
from hookledger.store.sqlite.ledger import SqliteLedger
from hookledger.store.sqlite.transaction import SqliteTransaction
from hookledger.work.run import Runner

SECRET = "whsec_made_up_for_the_provisioning_tests"
EXAMPLE = Path(__file__).parents[2] / "examples/provisioning"

HANDLER = "provision"
POINTS: dict[str, tuple[str, ...]] = {
    # The event: claimed, in the middle of its transaction, at its end.
    HANDLER: ("claimed", "after once", "after plan", "before outcome", "after outcome"),
    # The outbox. Before it is started, it is "after outcome". "during": the remote has done it and not answered yet.
    # Only the test knows when, and kills then.
    "upgrade_workspace": ("after started", "during", "after call", "after done"),
    "book_payment": ("after started", "during", "after call", "after done"),
    "send_receipt": ("after started", "during", "after call", "after check", "after done"),
    "open_onboarding_task": ("after started", "during", "after call", "after done"),
}


def load(name: str) -> ModuleType:
    """A module of the example; its folder is no package."""
    spec = spec_from_file_location(f"provisioning_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def crash(point: str, effect: str, key: str) -> None:
    """Here, if this is where to die."""
    try:
        (Path(os.environ["CRASHES"]) / f"{point}@{effect}@{key}").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def patch(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """`around` is given the real method and what it was called with."""
    real = getattr(owner, name)

    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await around(real, self, *args, **kwargs)

    setattr(owner, name, method)


def watch_handler() -> None:
    keys: dict[UUID, str] = {}

    async def call(real: Any, self: Any, handler: Any, claimed: Any, *rest: Any) -> Any:
        keys[claimed.id] = claimed.key
        crash("claimed", HANDLER, claimed.key)
        return await real(self, handler, claimed, *rest)

    async def commit(real: Any, self: Any, outcomes: Sequence[Any]) -> None:
        for outcome in outcomes:
            crash("before outcome", HANDLER, keys[outcome.id])
        await real(self, outcomes)
        for outcome in outcomes:
            crash("after outcome", HANDLER, keys[outcome.id])

    def after(point: str) -> Callable[..., Any]:
        async def write(real: Any, self: Any, intent: Any) -> Any:
            done = await real(self, intent)
            crash(point, HANDLER, keys[intent.event_id])
            return done

        return write

    patch(Runner, "_call", call)
    for transaction in (SqliteTransaction, PostgresTransaction):
        patch(transaction, "commit", commit)
        patch(transaction, "once", after("after once"))
        patch(transaction, "plan", after("after plan"))


def watch_ledger(effects: Any) -> None:
    names: dict[bytes, tuple[str, str]] = {}

    async def claim(real: Any, self: Any, worker: str, wanted: Any) -> Any:
        entries = await real(self, worker, wanted)
        for entry in entries:
            names[entry.identity] = (entry.name, entry.key)
            crash("after started", entry.name, entry.key)
        return entries

    async def finish(real: Any, self: Any, completions: Sequence[Any]) -> Any:
        concluded = await real(self, completions)
        for completion in completions:
            crash("after done", *names[completion.identity])
        return concluded

    for ledger in (SqliteLedger, PostgresLedger):
        patch(ledger, "claim", claim)
        patch(ledger, "finish", finish)

    def then(function: Any, point: str) -> Any:
        async def watched(op: Any, **arguments: Any) -> Any:
            result = await function(op, **arguments)
            crash(point, op.name, op.effect_key)
            return result

        return watched

    for effect in effects.all():
        effect.function = then(effect.function, "after call")
        if effect.checker and not effect.policy.ask_first:
            effect.checker = then(effect.checker, "after check")


os.environ["STRIPE_WEBHOOK_SECRET"] = SECRET
example = load("app")
inbox: Inbox = example.inbox
if os.environ.get("CRASHES"):
    watch_handler()
    watch_ledger(inbox.effects)
