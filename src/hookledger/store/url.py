"""A database's URL as people may see it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

UNNAMED = "…"
"""In place of what may hold a password."""


def without_password(url: str) -> str:
    """The URL as people may see it: which database it is, and nothing of who connects."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        return f"sqlite:///{Path(rest.removeprefix('/')).absolute()}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme}://{UNNAMED}"
    if "@" in parts.path + parts.query + parts.fragment:  # a password that was not quoted may be anywhere
        return f"{scheme}://{UNNAMED}"
    given = {name: ",".join(values) for name, values in parse_qs(parts.query).items()}
    host = parts.netloc.rpartition("@")[2] or given.get("host", "")
    port = f":{given['port']}" if "port" in given and ":" not in host else ""
    name = parts.path.strip("/") or given.get("dbname") or given.get("database", "")
    return f"{scheme}://{host}{port}/{name}"
