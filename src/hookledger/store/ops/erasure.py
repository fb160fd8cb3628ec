"""Erasure: what an event said is forgotten, and that it was here is still known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from ...errors import WrongState
from ...ids import stage_id
from ...model import stage_source
from ...states import FINAL, EffectKind, EffectState, State
from ..session import Operations, Row, Session, writes
from .audit import Audit, Change, record_action
from .guards import erase_guards

ERASED = "erased"
"""What stands where a reason stood."""
OURS = (None, "no handler")
"""Reasons in our own words that the consistency check reads; they say nothing about anybody."""


class Erased(Struct, frozen=True):
    """What an erasure emptied."""

    events: tuple[UUID, ...]
    requests: int
    effects: int
    attempts: int


class Erasure(Operations):
    """`store.erasure`."""

    @writes
    async def erase(
        self,
        db: Session,
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
        """Empty everything that an event brought and left, in one audited transaction.

        That is: bytes, headers, query and remote address of its requests, quarantined ones too; the same body in the
        sample of rejected requests; the ids of provider and object, reason, result and error; tracebacks of attempts
        and calls; arguments, results and errors of its effects; its answer; the reasons why jobs were not allowed to
        act on it.

        Identities, digests, effect keys, guards with their versions and the event's key stay; with `key_too`, digests
        replace the keys that are shown. Audit log entries stay, without the results that they replaced and the
        reviews that they answered.

        The stages of an event are erased with it. Raises WrongState, and changes nothing, if the event or a stage is
        not finished, if it has changed, if one of its effects is not finished, or if its requests brought other
        events: the error names them, and `whole_request` erases them too.
        """
        await _check_whole(db, event_id)
        requests, _ = await _requests_and_events(db, event_id, whole_request)
        await db("lock_quarantined_to_erase", requests=requests)
        requests, idents = await _requests_and_events(db, event_id, whole_request)
        effects = await db("lock_effects_to_erase", events=idents)
        events = await db("lock_events_to_erase", events=idents)
        _check(events, event_id, expected, seen)
        if (await _requests_and_events(db, event_id, whole_request))[1] != idents:  # before the events were locked
            raise WrongState(f"event {event_id} got a stage, or its request an event, just now: erase it again")
        if running := [event for event in events if event["state"] not in FINAL]:
            named = "; ".join(f"{_named(event)} is {event['state']}" for event in running)
            raise WrongState(f"{named}: only {', '.join(sorted(FINAL))} can be erased")
        for event in events:
            _check_effects(event["id"], (row for row in effects if row["event_id"] == event["id"]))
        attempts = 0
        if not dry:
            attempts = await _empty(db, events, requests, key_too)
            await _empty_effects(db, effects, key_too)
            await db("erase_replaced", events=idents)
            if key_too:
                await erase_guards(db, idents, digest)
            changes = [Change(None, (event["state"], event["state"]), event["id"]) for event in events]
            await record_action(db, "erase", Audit(actor, reason), *changes)
        return Erased(tuple(event["id"] for event in events), len(requests), len(effects), attempts)

    @writes
    async def erase_effects(
        self, db: Session, event_id: UUID, actor: str, reason: str, *, key_too: bool = False
    ) -> int:
        """The same for the effects of an event that was pruned, and of its stages; returns how many."""
        pruned = await db("pruned_events", first=event_id, last=event_id)
        if not pruned:
            raise WrongState(f"event {event_id} was not pruned")
        pruned += await _pruned_stages(db, event_id, pruned[0]["source"])
        idents = sorted(row["event_id"] for row in pruned)
        effects = await db("lock_effects_to_erase", events=idents)
        await _empty_effects(db, effects, key_too)
        await db("erase_replaced", events=idents)
        if key_too:
            await erase_guards(db, idents, digest)
        await db("erase_job_items", events=idents)
        changes = [Change(None, (row["state"], row["state"]), row["event_id"]) for row in pruned]
        await record_action(db, "erase", Audit(actor, reason), *changes)
        return len(effects)


async def _requests_and_events(db: Session, event_id: UUID, whole_request: bool) -> tuple[list[UUID], list[UUID]]:
    """The requests that are to be emptied, and the events that these brought, with their stages."""
    idents, requests = {event_id}, set[UUID]()
    while True:
        idents |= {row["id"] for row in await db("stages_of_events", events=sorted(idents))}
        found = {row["request_id"] for row in await db("requests_to_erase", events=sorted(idents))}
        brought = {row["id"] for row in await db("events_brought", requests=sorted(found))}
        met = {row["id"] for row in await db("events_met", requests=sorted(found))}
        _check_others(event_id, sorted((brought | met) - idents), whole_request)
        if found == requests and brought <= idents:
            return sorted(requests), sorted(idents)
        requests, idents = found, idents | brought


async def _pruned_stages(db: Session, event_id: UUID, source: str) -> list[Row]:
    """What is left of the stages of a pruned event. Their ids begin like its own, and tell whose they are."""
    around = {
        "first": UUID(bytes=event_id.bytes[:6] + bytes(10)),
        "last": UUID(bytes=event_id.bytes[:6] + b"\xff" * 10),
    }
    found = await db("pruned_stages", **around, prefix=stage_source(source, ""))
    return [row for row in found if row["event_id"] == stage_id(event_id, row["source"].rpartition("/")[2])]


async def _empty(db: Session, events: Sequence[Row], requests: list[UUID], key_too: bool) -> int:
    """Returns how many attempts had a traceback."""
    idents = [event["id"] for event in events]
    await db("erase_rejections", requests=requests, empty=b"")
    await db("empty_requests", requests=requests, empty=b"")
    await db("erase_repairs", events=idents)
    for event in events:
        reason = event["reason"] if event["reason"] in OURS else ERASED  # a state that needs a reason keeps one
        await db("erase_event", id=event["id"], reason=reason, key=_key_left(event, key_too))
    if key_too:
        await db("erase_delivery_ids", requests=requests)
        await db("erase_later_delivery_ids", events=idents)
    await db("erase_job_items", events=idents)
    await db("delete_answers", events=idents)
    return len(await db("erase_attempts", events=idents))


async def _empty_effects(db: Session, effects: Sequence[Row], key_too: bool) -> None:
    if not effects:
        return
    for row in effects:
        await db("erase_effect", identity=row["identity"], key=_key_left(row, key_too), empty=b"")
    await db("trim_calls", identities=[row["identity"] for row in effects])
    if lanes := [(row["name"], row["lane"]) for row in effects if row["lane"] is not None]:
        held = await db("lock_lanes_to_erase", lanes=lanes)
        await db("erase_lanes", lanes=[(row["name"], row["lane"]) for row in held])


async def _check_whole(db: Session, event_id: UUID) -> None:
    """WrongState if it is a stage: its bytes are its event's."""
    for row in await db("event", id=event_id):
        if row["parent"] is not None:
            raise WrongState(f"{event_id} is stage {row['stage']!r} of event {row['parent']}: erase that event")


def _named(event: Row) -> str:
    return f"event {event['id']}" if event["stage"] is None else f"its stage {event['stage']!r}"


def _check(events: Sequence[Row], event_id: UUID, expected: State, seen: int) -> None:
    """WrongState unless the event is as it was."""
    event = next((row for row in events if row["id"] == event_id), None)
    if event is None:
        raise WrongState(f"there is no event {event_id}: it was pruned")
    if (event["state"], event["claim"]) != (expected, seen):
        raise WrongState(f"event {event_id} is {event['state']} now: it has changed")


def _check_effects(event_id: UUID, effects: Iterable[Row]) -> None:
    """An outbox entry needs its arguments until it is over; a call has them from its handler."""
    over = (EffectState.DONE, EffectState.CANCELLED)
    for row in effects:
        harmless = row["kind"] == EffectKind.CALL and row["state"] == EffectState.FAILED
        if row["state"] not in over and not harmless:
            label = f"{row['name']}:{row['key']}"
            raise WrongState(f"effect {label} of event {event_id} is {row['state']}: hookledger resolve first")


def _check_others(event_id: UUID, others: Sequence[UUID], whole_request: bool) -> None:
    if others and not whole_request:
        names = ", ".join(map(str, others[:10])) + (" …" if len(others) > 10 else "")
        raise WrongState(
            f"the requests of event {event_id} brought other events too: {names}. Their bytes are the same: erase "
            "them together (--whole-request), or none"
        )


def _key_left(row: Row, key_too: bool) -> str:
    """Return the key that is shown, or its digest."""
    key: str = row["key"]
    return digest(key) if key_too else key


def digest(key: str) -> str:
    """The same for the same key, also when it is erased twice."""
    if key.startswith("sha256:"):
        return key
    return f"sha256:{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"
