"""What workers do with a guarded event whose route they cannot run: decide it, or leave it to the next request."""

from __future__ import annotations

from typing import Any

from ..clock import Seconds
from ..errors import Review, Skip, Wait
from ..model import Claimed
from ..retry import RetryPolicy
from ..work.event import Event
from ..work.route import Handler, Result
from .routes import Route

WITHOUT_END = RetryPolicy(attempts=1_000_000_000, max_age=Seconds("36500d"))
"""A budget is for what is retried automatically: these runs wait for a request."""
CRASHES = 2
"""An event that took its process down so often is not run again without an operator."""


def undecided(attempts: int) -> bool:
    """Whether an earlier attempt of this run died. `attempts`: those that count, and every attempt that ended with a
    decision does not."""
    return attempts > 0


def left_behind(route: Route, crashes: int) -> Exception | None:
    """Return what an attempt that died comes to: a review; or None if the route runs again."""
    if route.repeat == "never":
        return Review(
            f"the process died that ran {route.name}: whether the request was carried out is unknown; approve it to "
            "run it once more with the next request, settle it if it was carried out, or reject it"
        )
    if crashes >= CRASHES:
        return Review(f"{route.name} died {crashes} times with its process: look at why before it runs again")
    return None


def handler_of(route: Route, *, timeout: float, plain: bool) -> Handler:
    """The handler by which the application's own process runs a route."""

    async def run(event: Event[Any]) -> Result:
        raise NotImplementedError("the application runs it")

    def run_plainly(event: Any) -> Result:
        raise NotImplementedError("the application runs it")

    function = run_plainly if plain else run
    function.__qualname__ = function.__name__ = route.name
    return Handler(function, retry=WITHOUT_END, timeout=timeout)


def decider_of(route: Route, keep: float) -> Handler:
    """The handler that workers have for the events of a route. Without a transaction: it writes nothing."""

    async def decide(event: Event[Any]) -> Result:
        claimed: Claimed = event._claimed
        if undecided(claimed.attempts - 1) and (review := left_behind(route, claimed.crashes)) is not None:
            raise review
        if claimed.run_age >= keep:
            raise Skip("it was not carried out, and no further request with its key came in time")
        raise Wait("only the application runs it, with the next request that has its key", after=keep)

    decide.__qualname__ = decide.__name__ = f"{route.name} (its next request)"
    return Handler(decide, retry=WITHOUT_END, transaction=False, reads_content=False, by_request=keep)
