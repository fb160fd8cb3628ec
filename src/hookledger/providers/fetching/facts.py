"""Where a provider's API has the object of an event: the part `fetcher` of a contract."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct

from ..fields import Field


class Fetcher(Struct, frozen=True, kw_only=True, dict=True):
    """A path names what replaces `{…}` in it: `{id}` is the event's object, `{event_id}` the provider's id of the
    event, `{version}` the API's version, and any other a field of the event, such as `{body:issue.number}`. The host
    is never a part of the event."""

    paths: tuple[tuple[str, str], ...]
    """The path of each kind of object."""
    headers: tuple[tuple[str, str], ...]
    """What each request has; `{token}` is the credential."""
    token: str
    """What the credential is, in a few words."""
    base_url: str = ""
    """Of the API; empty: the setting `shop` names the host."""
    version: str = ""
    """Of the API, unless the settings have another."""
    version_header: str = ""
    """Where it goes, if not into the path; not sent if it is unknown."""
    oauth: str = ""
    """The path that gives a token for client credentials; empty: the token is configured."""
    kind: tuple[Field, ...] = ()
    """The first one present is the kind of object. Empty: the event's type is, whole or without its last part."""
    ids: tuple[tuple[str, str], ...] = ()
    """The kind of object by the beginning of its id, where the event does not say: in a repair."""
    short_ids: bool = False
    """Whether paths have the id without that beginning."""
    inside: tuple[tuple[str, str], ...] = ()
    """By kind: the field of the response that holds the object; default: the response is the object."""
    from_event: tuple[tuple[str, Field], ...] = ()
    """Headers whose value is a field of the event, such as its account; not sent if it is absent."""
    witness: str = ""
    """What only a token for the event's own account can read: with it, a 404 means that the object is gone. Without
    it, or with another token, a 404 may also mean that the token does not see the object."""
    says: tuple[tuple[str, Field], ...] = ()
    """Fields of that response, and of the event, that are equal where the event has them."""
    unsure: frozenset[str] = frozenset()
    """Kinds that the API hides from some tokens, or after some time: their 404 means nothing."""

    @cached_property
    def path_of(self) -> dict[str, str]:
        return dict(self.paths)

    @cached_property
    def kinds(self) -> str:
        return ", ".join(kind for kind, _ in self.paths)
