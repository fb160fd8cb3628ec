"""What records deliveries whose handlers answer and runs these, open on one event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ..ids import process_name
from ..model import base_source
from ..observe.metrics.rollup import RateWriter, Written
from ..store.protocol import Store
from ..work.parts import Parts
from .answerer import InlineAnswerer

if TYPE_CHECKING:
    from ..inbox import Inbox


async def open_answerer(
    inbox: Inbox, stack: contextlib.AsyncExitStack, *, stuck: Callable[[], None] = lambda: None
) -> InlineAnswerer:
    """Return one with connections that no ack waits for; all of it is closed with the stack."""
    answers = inbox.settings.answers
    store = inbox.store(lease=answers.lease)
    await store.open(handlers=answers.concurrency)
    stack.push_async_callback(store.close)
    for transactions in inbox.transactions:
        await store.check(transactions)
    answerer = _answerer(inbox, store, stuck)
    if inbox.settings.monitor.rates:
        writer = RateWriter(store.rates, answerer.name, inbox.answer_metrics.totals)
        await stack.enter_async_context(Written(writer))
    answerer.start()
    stack.push_async_callback(answerer.stop)
    return answerer


def _answerer(inbox: Inbox, store: Store, stuck: Callable[[], None]) -> InlineAnswerer:
    inbox.effects.verify()
    answers, counts = inbox.settings.answers, inbox.answer_counts
    work = msgspec.structs.replace(inbox.settings.work, lease=answers.lease, concurrency=answers.concurrency)
    rules = {name: source.settings.max_running for name, source in inbox.sources.items()}
    for source, handler in inbox.routes.served():
        if handler.answers is not None:
            counts.expect(base_source(source), handler.label)

    def parts(**given: Any) -> Parts:
        return Parts(
            store,
            inbox.routes,
            inbox.effects,
            inbox.checks(),
            work,
            handles=None,
            transactions=inbox.transactions,
            currents=inbox.currents,
            max_running={name: most for name, most in rules.items() if most is not None},
            rank=inbox.rank,
            counts=counts,
            **given,
        )

    reclaimer = inbox.lease_reclaimer(store, work, counts)
    return InlineAnswerer(store, inbox.routes, parts, reclaimer, answers, work, name=process_name(), stuck=stuck)
