"""What an application declares about its handlers and effects, as far as a preview of a replay asks."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import BadResult
from .ledger import Effect
from .model import Kind
from .operate.preview import EffectFacts, HandlerFacts
from .store.protocol import Transactions
from .work.declare import Effects
from .work.ledger import recorded
from .work.route import Routes
from .work.slots import small_pools


class Declarations:
    def __init__(
        self, routes: Routes, effects: Effects, transactions: Sequence[Transactions] = (), concurrency: int = 1
    ) -> None:
        self._routes = routes
        self._effects = effects
        self.advice = small_pools(transactions, concurrency)

    @property
    def loaded(self) -> bool:
        return bool(self._routes.handles())

    def handler(self, source: str, kind: str) -> HandlerFacts | None:
        found = self._routes.find(Kind(source, kind))
        return None if found is None else HandlerFacts(found.name, found.replay == "converges")

    def effect(self, name: str) -> EffectFacts | None:
        found = self._effects.find(name)
        if found is None:
            return None

        def readable(effect: Effect) -> bool:
            try:
                recorded(found, effect)
            except BadResult:
                return False
            return True

        policy = found.policy
        return EffectFacts(
            policy.may_repeat,
            checked=found.checker is not None,
            asks_first=policy.ask_first,
            readable=readable,
            keep_result=found.keep_result,
            form=found.form,
            needs_result=found.needs_result,
        )
