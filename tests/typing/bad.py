"""One mistake on each marked line, and no other: both type checkers report exactly those. Never run.

The marks say `expect` for what mypy --strict and pyright report, `expect by pyright` for what mypy has no rule for.
"""

# pyright: strict
# ruff: noqa: PLE1142 - one of the mistakes
from msgspec import Struct

from hookledger import Event, Inbox, Op, Statements, SyncEvent, SyncStatements

inbox = Inbox("sqlite:///never-opened.db")
stripe = inbox.source("stripe", provider="stripe", secrets=["whsec_made_up"])
inbox.source("a", secrets=["whsec_made_up"])  # expect: no provider
inbox.source("b", provider="stripe", secret="whsec_made_up")  # expect: no such option
inbox.source("c", provider="stripe", other_types="refuse")  # expect: no such value
inbox.source("d", provider="stripe", redelivery_alert="3")  # expect: an option of the wrong type
inbox.source("e", provider="stripe", key=lambda content: content["id"])  # expect: a key function of the wrong form


class Session:
    async def add(self, what: object) -> None: ...


@inbox.effect(repeat="keyed", window="24h")
async def charge(op: Op, account: str, cents: int = 0) -> int:
    return 1


@inbox.effect(repeat="safe")
def save(op: Op, account: str) -> dict[str, str]:
    return {}


# ── declaring ──


@inbox.effect(repeat="sometimes")  # expect: no such policy
async def sometimes(op: Op) -> None: ...


@inbox.effect()  # expect: a policy is required
async def undecided(op: Op) -> None: ...


@inbox.effect(repeat="safe")  # expect: the first parameter is the operation
async def no_op(account: str) -> None: ...


@charge.check  # expect: a check has the parameters of its effect
async def was_charged(op: Op, account: int, cents: int = 0) -> bool:
    return True


@charge.check  # expect: a check says yes, no or nothing
async def is_it_charged(op: Op, account: str, cents: int = 0) -> str:
    return "yes"


# ── an async handler ──


@stripe.on("arguments")
async def arguments(event: Event) -> None:
    await event.call(charge, "k")  # expect: a missing argument
    await event.later(charge, "k")  # expect: a missing argument
    await event.call(charge, "k", 7)  # expect: an argument of the wrong type
    await event.later(charge, "k", account="a", cents="1")  # expect: an argument of the wrong type
    await event.call(charge, "k", "a", pence=1)  # expect: an unknown keyword
    await event.later(save, "k", "a", 1)  # expect: an argument too many
    await event.call(charge, 1.5, "a")  # expect: a key of the wrong type
    await event.later(charge, None, "a")  # expect: a key of the wrong type
    await event.once("credit", b"k")  # expect: a key of the wrong type
    await event.once("credit")  # expect: no key
    await event.newer("subscription", "sub_1")  # expect: no version
    await event.newer("subscription", 1.5, 1)  # expect: a key of the wrong type
    await event.newer("subscription", "sub_1", b"1731")  # expect: not a version
    await event.newer("subscription", "sub_1", {"created": 1})  # expect: not a version
    await event.newer("subscription", "sub_1", (1, None))  # expect: not a version
    await event.call(arguments, "k")  # expect: a function that is no effect


@stripe.on("results")
async def results(event: Event) -> None:
    (await event.call(charge, "k", "a")).upper()  # expect: the result is an int
    (await event.call(save, "k", "a")) + 1  # expect: the result is a dict
    len(await event.later(charge, "k", "a"))  # expect: later has no result


@stripe.on("forgotten")
async def forgotten(event: Event) -> None:
    if event.once("credit", "k"):  # expect by pyright: the truth of what was not awaited
        await event.later(charge, "k", 7)  # expect: an argument of the wrong type, inside the same mistake
    await event.later(charge, "k", 7)  # expect: and after it
    if event.newer("subscription", "k", 1):  # expect by pyright: the truth of what was not awaited
        print(1 + event.newer("subscription", "k", 1))  # expect: a sum with what was not awaited
    print(1 + event.once("credit", "k"))  # expect: a sum with what was not awaited
    first: bool = event.once("credit", "k")  # expect: not a bool
    print(1 + event.call(charge, "k", "a"), first)  # expect: a sum with what was not awaited
    event.call(charge, "k", "a")  # expect: never awaited
    event.later(charge, "k", "a")  # expect: never awaited


# ── a plain handler ──


@stripe.on("plain")
def plain(event: SyncEvent) -> None:
    await event.later(charge, "k", "a")  # expect: nothing to await in a plain function
    event.call(charge, "k")  # expect: a missing argument
    event.call(charge, "k", "a").upper()  # expect: the result is an int
    event.later(save, "k", account=1)  # expect: an argument of the wrong type
    event.once("credit", "k").upper()  # expect: a bool
    event.newer("subscription", "k", 1).upper()  # expect: a bool
    event.newer("subscription", "k", object())  # expect: not a version


@stripe.on("stale", stale="ignore")  # expect: no such rule
async def ignored(event: Event) -> None: ...


@stripe.on("mixed")  # expect: a plain function takes a SyncEvent
def mixed(event: Event) -> None:
    print(event.type)


@stripe.on("mixed.up")  # expect: an async one takes an Event
async def mixed_up(event: SyncEvent) -> None:
    print(event.type)


@stripe.on("result")  # expect: a handler returns nothing, text or a dict
async def result(event: Event) -> int:
    return event.attempt


# ── the transaction ──


@stripe.on("session")
async def session(event: Event[Session]) -> None:
    await event.tx.execute("SELECT 1")  # expect: a session of one's own has its own methods
    await helper(event)  # expect: the helper wants another kind of transaction


async def helper(event: Event) -> None:
    await event.tx.execute("SELECT 1")
    await event.tx.add("x")  # expect: the default has no such method


# ── content of a type ──


class Invoice(Struct):
    id: str
    cents: int


class Order(Struct):
    id: str


@stripe.on("typed", body=Invoice)
async def typed(event: Event[Statements, Invoice]) -> None:
    print(event.content.currency)  # expect: no such field
    event.content.cents.upper()  # expect: an int
    print(event.content["id"])  # expect: no dict


@stripe.on("other", body=Order)  # expect: the handler takes another type
async def other(event: Event[Statements, Invoice]) -> None: ...


@stripe.on("other.plainly", body=Order)  # expect: the handler takes another type
def other_plainly(event: SyncEvent[SyncStatements, Invoice]) -> None: ...


@stripe.on("instance", body=Order("1"))  # expect: a type, no value
async def instance(event: Event) -> None: ...
