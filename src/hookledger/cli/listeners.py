"""Resolves the addresses and ports to listen on."""

from __future__ import annotations

import socket
from typing import TypeVar

import msgspec

from ..config import IntakeSettings, OperatorSettings
from ..errors import ConfigError
from ..inbox import Inbox

L = TypeVar("L", IntakeSettings, OperatorSettings)


def override_listeners(
    inbox: Inbox, host: str | None, port: int | None, operator_host: str | None, operator_port: int | None
) -> None:
    """Apply the listener options to the inbox's settings."""
    intake = listening(inbox.settings.intake, host, port)
    operator = listening(inbox.settings.operator, operator_host, operator_port)
    if intake.host == operator.host and intake.port == operator.port:
        raise ConfigError("intake and operator API have the same address and port: give one of them another port")
    inbox.settings = msgspec.structs.replace(inbox.settings, intake=intake, operator=operator)


def listening(settings: L, host: str | None, port: int | None) -> L:
    """Return the settings with the options applied; port 0 becomes a free port."""
    host, port = _address(host or settings.host), settings.port if port is None else port
    return msgspec.structs.replace(settings, host=host, port=port or free_port(host))


def url(listener: IntakeSettings | OperatorSettings) -> str:
    """Return the listener's URL."""
    where = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"http://{where}:{listener.port}"


def free_port(host: str, port: int = 0) -> int:
    """Return the port, or any free one for 0; ConfigError if it is in use: a second server would share it and get
    only some deliveries."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            found: int = probe.getsockname()[1]
            return found
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _address(host: str) -> str:
    """Return the address of a host name: the server binds to addresses only."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"host {host!r} has no address: check its name") from error
