"""The handlers that benchmarks/blocked.py measures beside: one blocks its event loop, one kills its process."""

from __future__ import annotations

import os
import signal
import time

from hookledger import Answer, Event, Inbox

BLOCKS = 2.0
"""Seconds."""
LATE = Answer("working on it", status=202)

inbox = Inbox(os.environ["HOOKLEDGER_DATABASE"])
stripe = inbox.source("stripe", provider="stripe", secrets=["whsec_benchmark"])


@stripe.answer("blocks", deadline="1s", late=LATE)
async def blocks(event: Event) -> Answer:
    time.sleep(BLOCKS)
    return Answer("done")


@stripe.answer("dies", deadline="1s", late=LATE)
async def dies(event: Event) -> Answer:
    os.kill(os.getpid(), signal.SIGKILL)
    return Answer("never sent")


@stripe.on("invoice.paid")
async def paid(event: Event) -> None:
    """No worker runs it here: only the receiver is measured."""
