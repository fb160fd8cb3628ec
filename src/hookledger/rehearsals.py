"""The values of a rehearsal: what a replay would do, found out by running its handler and undoing it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec import Struct

from .states import EffectKind, RehearsalState

MAX_RESULT = 65_536
"""Bytes of what is kept of a rehearsal."""


class Ended(StrEnum):
    """How the handler's run ended, as far as it was rehearsed."""

    PROCESSED = "processed"
    """The event would be processed."""

    SKIPPED = "skipped"
    """The handler would skip it."""

    WOULD_RETRY = "would_retry"
    """It would fail, and be tried again."""

    WOULD_FAIL = "would_fail"
    """It would fail for good."""

    NEEDS_REVIEW = "needs_review"
    """A person would have to decide."""

    STOPPED = "stopped"
    """At an effect that the ledger has no answer for: what comes after it cannot be known."""

    TIMED_OUT = "timed_out"
    """A limit of the rehearsal's own was reached; a real run has others."""

    REFUSED = "refused"
    """It was not rehearsed."""


class StepFate(StrEnum):
    """What an effect that the handler asked for would come to."""

    DONE = "done"
    """It is done: the answer came from the ledger."""

    HAPPENS = "happens"
    """`once` is true: what follows is done."""

    PLANNED = "planned"
    """The outbox would get it."""

    STAYS = "stays"
    """The outbox has it, or it is over: asking for it changes nothing."""

    CALLED = "called"
    """It would be called now. The rehearsal stops here."""

    CHECKED = "checked"
    """Its check would be asked, and decide. The rehearsal stops here."""

    WAITS = "waits"
    """Somebody is at it, or nobody may call: the run would wait, or come back later."""

    UNDECIDED = "undecided"
    """A person would have to decide: the effect is in doubt, was cancelled, or was asked for with other arguments."""


class Step(Struct, frozen=True):
    """One effect that the handler asked for."""

    kind: EffectKind
    name: str
    key: str
    fate: StepFate
    why: str
    idempotency_key: str | None = None
    """That it has, or would be called under."""
    arguments_digest: str | None = None
    """In hexadecimal digits, of the arguments that tell it from others."""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.key}"


class Write(Struct, frozen=True):
    """Rows of one table that were written, by the handler or by triggers, and undone."""

    table: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def words(self) -> str:
        counts = {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}
        return f"{self.table}: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}"


class Result(Struct, frozen=True):
    """What a worker found."""

    ended: Ended
    words: str
    steps: tuple[Step, ...] = ()
    writes: tuple[Write, ...] | None = ()
    """None: not known, because the transaction was broken off or had failed."""
    alert: str | None = None
    """Something that must not have happened: read it first."""
    run: int = 0
    """The run that was rehearsed."""

    def kept(self) -> bytes:
        """As JSON of at most MAX_RESULT bytes. The last steps and writes are left off where there are too many."""
        encoded, steps, writes = msgspec.json.encode(self), len(self.steps), len(self.writes or ())
        while len(encoded) > MAX_RESULT:
            steps, writes = steps // 2, writes // 2
            words = f"{self.words} (Only the first {steps} steps and {writes} tables are kept.)"
            kept = self.writes if self.writes is None else self.writes[:writes]
            encoded = msgspec.json.encode(
                msgspec.structs.replace(self, words=words, steps=self.steps[:steps], writes=kept)
            )
        return encoded


class Rehearsal(Struct, frozen=True):
    """A request for one, and what came of it."""

    id: UUID
    event_id: UUID
    source: str
    type: str
    actor: str
    reason: str
    repeat: tuple[str, ...]
    """Identities, in hexadecimal digits, of the effects that count as not done."""
    state: RehearsalState
    asked_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    result: Result | None
    """None until it is finished."""

    @property
    def ended(self) -> Ended | None:
        return self.result.ended if self.result else None

    @property
    def words(self) -> str:
        return self.result.words if self.result else f"it is {self.state}"


NOBODY = Result(Ended.REFUSED, "no worker that can rehearse it is alive", writes=())
"""Of what nobody took in time."""

DIED = Result(Ended.REFUSED, "the worker died, or was stopped, while it rehearsed: all of it is undone", writes=None)
"""Of what was taken and never finished."""
