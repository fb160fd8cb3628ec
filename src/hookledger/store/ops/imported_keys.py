"""Keys whose events were processed elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from msgspec import Struct

from ...errors import BadData
from ...ids import new_id
from ..session import Operations, Session, reads, writes
from .audit import Audit, Change, record_action

IMPORT_BATCH = 1000
"""Identities per transaction. A delivery with one of them waits for its end."""


class Imported(Struct, frozen=True):
    """What became of keys that were handed over."""

    given: int
    """Different ones."""
    new: int
    """Taken now; a delivery with one of them is a duplicate from here on."""
    known: int
    """Of these, here before."""


class ImportedKeys(Operations):
    """`store.imported_keys`."""

    async def import_keys(self, source: str, identities: Sequence[bytes], actor: str, reason: str) -> Imported:
        """Take identities whose events were processed elsewhere, one audited action; whatever content comes with one
        of them is a duplicate.

        In several transactions, so that no delivery waits long: when it fails in the middle, some are taken and the
        rest can be imported again. Raises BadData, and takes none, when one is no identity.
        """
        if any(len(identity) != 32 for identity in identities):
            raise BadData("an identity is a digest of 32 bytes")
        wanted, action, new = sorted(set(identities)), new_id(), 0
        for first in range(0, max(len(wanted), 1), IMPORT_BATCH):
            by = Audit(actor, reason) if first == 0 else None
            new += await self._import(source, wanted[first : first + IMPORT_BATCH], action, by)
        return Imported(len(wanted), new, len(wanted) - new)

    @writes
    async def _import(self, db: Session, source: str, batch: Sequence[bytes], action: UUID, by: Audit | None) -> int:
        """Take one batch; returns how many were free. `by`: given with the first batch, which records the action."""
        if by is not None:
            await record_action(db, "import-keys", by, Change(source, ("absent", "known"), action, action))
        wanted = [(identity,) for identity in batch]
        return len(await db("import_keys", identities=wanted, source=source, action=action, nothing=b""))

    async def known_keys(self, identities: Sequence[bytes]) -> set[bytes]:
        """Those of these identities that are taken."""
        found: set[bytes] = set()
        for first in range(0, len(identities), IMPORT_BATCH):
            found |= await self._known(identities[first : first + IMPORT_BATCH])
        return found

    @reads
    async def _known(self, db: Session, batch: Sequence[bytes]) -> set[bytes]:
        return {row["identity"] for row in await db("known_keys", identities=list(batch))}

    def query_keys(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        """The rows of the user's own SELECT, in batches of a thousand, read in a transaction that can write nothing.

        Raises ConfigError with the database's words when it refuses the query.
        """
        return self._database.select(sql)
