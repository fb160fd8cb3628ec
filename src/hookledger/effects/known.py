"""What the ledger answers of an effect that was asked for before."""

from __future__ import annotations

import shlex
from typing import Any

from ..errors import BadResult, ChangedArguments, Review
from ..ledger import Effect as Entry
from ..ledger import Intent, Known
from ..states import EffectKind, EffectState
from .model import Effect


def in_progress(known: Entry) -> bool:
    """Whether a worker with a lease, or the outbox, performs it."""
    if known.state is EffectState.STARTED and not known.expired:
        return True
    return known.kind is EffectKind.LATER and (known.due_at is not None or known.lease_left > 0)


def check_arguments(intent: Intent, known: Entry | Known) -> None:
    """Raise ChangedArguments where the effect was asked for before with other arguments."""
    if known.arguments_digest != intent.arguments_digest:
        raise ChangedArguments(
            f"effect {intent.name} {intent.key!r} was asked for before with other arguments; give another effect "
            "another key, or name what may differ in volatile="
        )


def cancelled(known: Entry) -> Review:
    return Review(f"effect {known.name} {known.key!r} was cancelled by an operator")


def recorded(effect: Effect[Any, Any], known: Entry) -> Any:
    """The result of what was done before. Raises BadResult where there is none that the handler can get."""
    if known.result is None and known.error is not None:
        lost = f"effect {known.name} {known.key!r} is done, but its result was lost: {known.error}"
        raise BadResult(lost + _correction(effect, known))
    try:
        return effect.result(known.result)
    except BadResult as error:
        raise BadResult(f"{error}{_correction(effect, known)}") from error


def _correction(effect: Effect[Any, Any], known: Entry) -> str:
    """How an operator gives the right result, which they may unless the call itself returned what is recorded."""
    if known.result is not None and known.decided != "happened":
        return ""
    label = shlex.quote(known.label)
    command = f"hookledger resolve {known.event_id} {label} --happened --result RESULT --reason WHY"
    return f"; give what the call returned, as JSON of this form: {effect.form}, then retry: {command}"
