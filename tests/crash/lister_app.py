"""A source whose provider lists twelve events."""

from collections.abc import AsyncIterator
from datetime import datetime

from hookledger import Inbox, Listed

LISTED = 12

inbox = Inbox()
source = inbox.source("shop", provider="stripe", secrets=["whsec_crash_tests_lister_secret"])


@source.lister
async def listed(since: datetime, until: datetime) -> AsyncIterator[Listed]:
    del since, until
    for number in range(LISTED):
        yield Listed(body=b'{"id": "evt_%d", "type": "t"}' % number, id=str(number))
