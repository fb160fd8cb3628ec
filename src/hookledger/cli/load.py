"""Imports the application that `--app` names, and says where in its code that fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from ..errors import ConfigError, HookledgerError
from ..inbox import Inbox
from ..work.blame import blame
from ..work.retry import words
from ..work.traces import excerpt

MAX_WORDS = 500


def load_app(app: str) -> Inbox:
    """The inbox that MODULE:NAME means."""
    module, _, name = app.partition(":")
    if not module or not name:
        raise ConfigError(f"--app is written module:name, not {app!r}")
    sys.path.insert(0, str(Path.cwd()))
    loaded = _imported(app, module)
    try:
        found = getattr(loaded, name)
    except AttributeError:
        inboxes = ", ".join(f"{module}:{key}" for key, value in vars(loaded).items() if isinstance(value, Inbox))
        known = f"--app {inboxes}" if inboxes else f"define {name} = Inbox(…) there"
        raise ConfigError(f"--app {app}: {loaded.__file__} has no {name!r}; {known}") from None
    if not isinstance(found, Inbox):
        raise ConfigError(f"--app {app} is a {type(found).__name__}, not an Inbox")
    return found


def _imported(app: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the application raises while it is imported
        package = module.partition(".")[0]
        place = blame(error, package).place
        if isinstance(error, ModuleNotFoundError) and place is None and f"{module}.".startswith(f"{error.name}."):
            missing = f"no module {error.name!r} in {Path.cwd()} or on Python's path"
            raise ConfigError(f"--app {app}: {missing}; check the name, or start in its folder") from error
        raise ConfigError(_told(app, package, place, error)) from error


def _told(app: str, package: str, place: str | None, error: BaseException) -> str:
    """Where and why; the traceback too, unless it is one of our own errors, which say what to do."""
    where = f"{place}: " if place else ""
    if isinstance(error, HookledgerError):
        return f"--app {app}: {where}{error}"
    said = f"{where}{type(error).__name__}: {words(error)[:MAX_WORDS]}"
    begun = error.__traceback__  # by us
    shown = excerpt(error.with_traceback(begun.tb_next if begun else None), package)
    return f"--app {app} cannot be imported: {said}\n{shown.rstrip()}"
