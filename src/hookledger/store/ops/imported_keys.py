"""Keys whose events were processed elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from uuid import UUID

from msgspec import Struct

from ...errors import BadData
from ...ids import new_id
from ..session import Operations, Session
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
        action, by, new, given = new_id(), Audit(actor, reason), 0, 0
        for first, batch in enumerate(list(_batches(sorted(set(identities)))) or [[]]):

            async def work(db: Session, first: int = first, batch: list[bytes] = batch) -> int:
                if first == 0:
                    await _note(db, action, source, by)
                wanted = [(identity,) for identity in batch]
                return len(await db("import_keys", identities=wanted, source=source, action=action, nothing=b""))

            new += await self._database.write(work)
            given += len(batch)
        return Imported(given, new, given - new)

    async def known_keys(self, identities: Sequence[bytes]) -> set[bytes]:
        """Those of these identities that are taken."""
        found: set[bytes] = set()
        for batch in _batches(identities):

            async def work(db: Session, batch: list[bytes] = batch) -> set[bytes]:
                return {row["identity"] for row in await db("known_keys", identities=batch)}

            found |= await self._database.read(work)
        return found

    def query_keys(self, sql: str) -> AsyncIterator[list[tuple[object, ...]]]:
        """The rows of the user's own SELECT, in batches of a thousand, read in a transaction that can write nothing.

        Raises ConfigError with the database's words when it refuses the query.
        """
        return self._database.select(sql)


async def _note(db: Session, action: UUID, source: str, by: Audit) -> None:
    """The action that imported keys belong to."""
    await record_action(db, "import-keys", by, Change(source, ("absent", "known"), action, action))


def _batches(identities: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many as one statement takes."""
    for start in range(0, len(identities), IMPORT_BATCH):
        yield list(identities[start : start + IMPORT_BATCH])
