"""`hookledger circuits`: which downstreams are called, and stopping or resuming calls to one."""

from __future__ import annotations

import click

from ..inbox import Inbox
from ..operate import circuits as operate
from ..states import CircuitState
from ..store.ops.audit import Audit
from .common import audited, inbox_options, print_json, prints_json, run_on
from .groups import ListsByDefault
from .table import Listing, moment, number, prose, say


@click.group(cls=ListsByDefault)
def circuits() -> None:
    """List, trip or reset circuit breakers

    While a circuit is open, workers do not call its downstream. `hookledger circuits` lists them.
    """


@circuits.command("list")
@inbox_options
@prints_json
def list_circuits(inbox: Inbox, as_json: bool) -> None:
    """List the circuits of all downstreams that ever failed"""
    found = run_on(inbox, operate.circuits)
    if as_json:
        print_json(found)
        return
    facts = (number("failures in a row"), "next trial", "since (UTC)", prose("why"))
    listing = Listing("downstream", "circuit", *facts, heads=2)
    for circuit in found:
        trial = "" if circuit.state is CircuitState.CLOSED else "when reset"
        if circuit.retry_in is not None:
            trial = f"in {circuit.retry_in:.0f} s" if circuit.retry_in > 0 else "now"
        failed = f"{circuit.failures:,}"
        since = moment(circuit.changed_at)
        listing.add(circuit.downstream, circuit.state, failed, trial, since, circuit.reason or "")
    listing.print(empty="No downstream has failed yet.")


@circuits.command()
@click.argument("downstream")
@audited
@inbox_options
def trip(inbox: Inbox, downstream: str, by: Audit) -> None:
    """Stop all calls to a downstream until you reset it

    Events and effects that need it wait; waiting uses up no attempts.
    """
    run_on(inbox, lambda context: operate.trip(context, by, downstream))
    say(f"The circuit of {downstream} is open until it is reset.")


@circuits.command()
@click.argument("downstream")
@audited
@inbox_options
def reset(inbox: Inbox, downstream: str, by: Audit) -> None:
    """Allow calls to a downstream again"""
    run_on(inbox, lambda context: operate.reset(context, by, downstream))
    say(f"The circuit of {downstream} is closed.")
