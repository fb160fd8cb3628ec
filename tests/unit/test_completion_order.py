"""However the ends of calls are told, an effect ends as its policy says: what `weigh` alone is good for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookledger.states import Repeat
from tests.overruns import Memory, Script, declared
from tests.soak import amount


@pytest.mark.parametrize("repeat", list(Repeat))
@pytest.mark.soak
@settings(max_examples=amount(60, 200, 400), deadline=None)
@given(data=st.data())
async def test_any_order_ends_as_the_policy_says(repeat: Repeat, data: st.DataObject) -> None:
    effect = declared(repeat, "charge")
    ledger = Memory(effect)
    await Script(ledger, effect, ledger.identity, ledger.wait, ledger.told, data).run()
