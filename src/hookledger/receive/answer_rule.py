"""How the deliveries of a handler that answers are answered, checked when it is declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from ..answer import DAY, Answer, AnswerRule
from ..clock import Seconds
from ..errors import ConfigError
from ..model import REPAIR, covers, overlap
from ..providers.behaviour import Answer as ProviderAnswer
from ..providers.contract import Contract
from .endpoint import Endpoint

MAX_DEADLINE = 50.0
"""Seconds; see ANSWER in `connection.py`."""
EXAMPLE = '@source.answer("slash_command", deadline="2.5s", late=Answer("working on it"))'


def answer_rule(
    endpoint: Endpoint,
    types: Sequence[str],
    deadline: float | str,
    late: Answer | None,
    failed: Answer | None,
    concurrent: Literal["wait", 409, 429],
) -> AnswerRule:
    """Return the rule; raise ConfigError for what cannot be answered."""
    contract = endpoint.contract
    _check_types(endpoint, types)
    if contract.items is not None:
        raise ConfigError(
            f"{contract.title} sends several events in one request, which has one response: declare the handler with "
            "on"
        )
    if contract.hint:
        raise ConfigError(
            f"{contract.title} only says that something changed, so that no redelivery can be recognised: declare "
            "the handler with on"
        )
    seconds = Seconds(deadline)
    if not 0 < seconds <= MAX_DEADLINE:
        raise ConfigError(
            f"deadline must be greater than 0 and at most {MAX_DEADLINE:g} s, not {deadline!r}: the receiver closes "
            "a connection that has no answer for a minute"
        )
    for name, given in (("late", late), ("failed", failed)):
        if given is not None and not isinstance(given, Answer):
            raise ConfigError(f"{name} is an Answer, not {type(given).__name__}")
    if late is not None and not late.successful:
        raise ConfigError(f"late says that the request was accepted, so its status is 2xx, not {late.status}")
    _check_late(contract, types, late)
    if concurrent not in ("wait", 409, 429):
        raise ConfigError(f'concurrent is "wait", 409 or 429, not {concurrent!r}')
    rule = AnswerRule(
        float(seconds),
        late,
        failed,
        concurrent,
        keep=kept_for(contract),
        redelivered=contract.retries.automatic is not False,
    )
    return replace(rule, by_type=tuple(_by_type(contract, types, rule)))


def _check_late(contract: Contract, types: Sequence[str], late: Answer | None) -> None:
    """Raise ConfigError if a sender would wait in vain, or get what it cannot read."""
    if late is None and contract.retries.automatic is False:
        for kind in types:
            if not any(covers(pattern, kind) for form in contract.late for pattern in form.types):
                raise ConfigError(
                    f"{contract.title} does not deliver again, so that an answer past the deadline would be lost: "
                    f"add late=, as in {EXAMPLE}"
                )
    if late is not None:
        for kind in types:
            form = next((form for form in contract.late if any(covers(one, kind) for one in form.types)), None)
            if form is not None and not form.deferrable:
                raise ConfigError(
                    f"{kind!r} of {contract.title} cannot be answered later: remove late=. Past the deadline it gets "
                    f"{(form.answer.body or b'').decode()}"
                )


def _by_type(contract: Contract, types: Sequence[str], rule: AnswerRule) -> Iterator[tuple[str, AnswerRule]]:
    """Yield the rules of types for which the provider has a form. What the declaration says precedes it, unless the
    declaration is for other types, too, and no other form fits."""
    for form in contract.late:
        if rule.late is not None and form.deferrable:
            continue
        default = _answer(form.answer)
        for pattern in form.types:
            if any(overlap(pattern, kind) for kind in types):
                own = rule.failed is not None and (form.deferrable or all(covers(pattern, kind) for kind in types))
                yield pattern, replace(rule, late=default, failed=rule.failed if own else default)


def _answer(form: ProviderAnswer) -> Answer:
    headers = {} if form.content_type is None else {"content-type": form.content_type}
    return Answer(form.body or b"", form.status, headers)


def _check_types(endpoint: Endpoint, types: Sequence[str]) -> None:
    if not types:
        raise ConfigError(f"a handler names the event types it takes: write {EXAMPLE}")
    for kind in types:
        if not isinstance(kind, str):
            raise ConfigError(f"an event type is text, not {kind!r}: write {EXAMPLE}")
        if kind == REPAIR:
            raise ConfigError(f"the handler of {REPAIR} is declared with @source.repair")
        ordered = next((found for found in sorted(endpoint.settings.ordered) if overlap(found, kind)), None)
        if ordered is not None:
            raise ConfigError(
                f"events of {ordered!r} are ordered, so that one may wait for others and its sender for all of them: "
                "leave it out of ordered, or declare the handler with on"
            )


def kept_for(contract: Contract) -> float:
    """Seconds for which answers are kept: a day, or as long as the provider retries if that is longer."""
    return max(DAY, (contract.retries.hours or 0.0) * 3600.0)
