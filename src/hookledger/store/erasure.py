"""What a store does to forget what an event said, and still know that it was here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol
from uuid import UUID

from ..errors import WrongState
from ..retention import Erased
from ..states import FINAL, EffectKind, EffectState, State

ERASED = "erased"
"""What stands where a reason stood."""
OURS = ("no handler",)
"""Reasons in our own words that the books read; they say nothing about anybody."""


class Erasure(Protocol):
    """`store.erasure`."""

    async def erase(
        self,
        event_id: UUID,
        expected: State,
        seen: int,
        actor: str,
        reason: str,
        *,
        key_too: bool = False,
        whole_request: bool = False,
        dry: bool = False,
    ) -> Erased:
        """Empty, in one audited transaction, whatever an event brought and left.

        That is: bytes, headers, query and remote address of its requests, odd ones too; the same body in the sample
        of refused requests; the ids of provider and object, reason, result and error; tracebacks of attempts and
        calls; arguments, results and errors of its effects; the words in which jobs refused it.

        Identities, digests, effect keys and the event's key stay; with `key_too` digests stand for the keys that are
        shown. Audit entries stay as they are.

        Raises WrongState, and changes nothing, when the event is not finished or changed meanwhile, when an effect of
        it is not over, or when its requests brought other events: those are named, and go with it by `whole_request`.
        """
        ...

    async def erase_effects(self, event_id: UUID, actor: str, reason: str, *, key_too: bool = False) -> int:
        """The same for the effects of an event that was pruned; returns how many."""
        ...


class Finished(NamedTuple):
    """An event that is to be erased, as it is now."""

    id: UUID
    state: State
    claim: int
    reason: str | None
    key: str


class Left(NamedTuple):
    """An effect of it."""

    label: str
    kind: EffectKind
    state: EffectState


def check(event: Finished | None, event_id: UUID, expected: State, seen: int) -> Finished:
    """The event, if it is as it was and finished; else WrongState."""
    if event is None:
        raise WrongState(f"there is no event {event_id} any more")
    if (event.state, event.claim) != (expected, seen):
        raise WrongState(f"event {event_id} is {event.state} now: it changed meanwhile")
    return check_finished(event)


def check_finished(event: Finished) -> Finished:
    if event.state not in FINAL:
        allowed = ", ".join(sorted(FINAL))
        raise WrongState(f"event {event.id} is {event.state}: only {allowed} can be erased")
    return event


def check_effects(event_id: UUID, effects: Iterable[Left]) -> None:
    """An outbox entry needs its arguments until it is over; a call has them from its handler."""
    over = (EffectState.DONE, EffectState.CANCELLED)
    for effect in effects:
        harmless = effect.kind is EffectKind.CALL and effect.state is EffectState.FAILED
        if effect.state not in over and not harmless:
            raise WrongState(
                f"effect {effect.label} of event {event_id} is {effect.state}: hookledger resolve first"
            )


def check_others(event_id: UUID, others: Sequence[UUID], whole_request: bool) -> None:
    if others and not whole_request:
        names = ", ".join(map(str, others[:10])) + (" …" if len(others) > 10 else "")
        raise WrongState(
            f"the requests of event {event_id} brought other events too: {names}. Their bytes are the same: erase "
            "them together (--whole-request), or none"
        )


def reason_left(event: Finished) -> str | None:
    """A state that needs a reason keeps one."""
    return event.reason if event.reason is None or event.reason in OURS else ERASED


def key_left(key: str, key_too: bool) -> str:
    """The key that is shown, or what stands for it: the same for the same key, and shown as such twice."""
    if not key_too or key.startswith("sha256:"):
        return key
    return f"sha256:{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"
