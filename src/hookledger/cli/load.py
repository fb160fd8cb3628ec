"""Imports the application that `--app` names, and reports where in its code that fails."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from ..errors import ConfigError, HookledgerError
from ..inbox import Inbox
from ..observe.blame import blame
from ..observe.traces import excerpt
from ..retry import message_of

MAX_WORDS = 500


def load_app(app: str) -> Inbox:
    """Return the inbox that MODULE:NAME names."""
    module, _, name = app.partition(":")
    if not module or not name:
        raise ConfigError(f"--app {app!r} is not of the form module:name, such as app:inbox")
    sys.path.insert(0, str(Path.cwd()))
    loaded = _imported(app, module)
    try:
        found = getattr(loaded, name)
    except AttributeError:
        inboxes = ", ".join(f"{module}:{key}" for key, value in vars(loaded).items() if isinstance(value, Inbox))
        known = f"--app {inboxes}" if inboxes else f"define {name} = Inbox(…) there"
        raise ConfigError(f"--app {app}: {loaded.__file__} has no {name!r}; {known}") from None
    if not isinstance(found, Inbox):
        raise ConfigError(
            f"--app {app} is a {type(found).__name__}, not an Inbox: name the variable that holds the Inbox"
        )
    return found


def _imported(app: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # anything the application raises
        package = module.partition(".")[0]
        place = blame(error, package).place
        if isinstance(error, ModuleNotFoundError) and place is None and f"{module}.".startswith(f"{error.name}."):
            missing = f"no module {error.name!r} in {Path.cwd()} or on Python's path"
            raise ConfigError(f"--app {app}: {missing}; check the name, or run the command in its folder") from error
        raise ConfigError(_import_error(app, package, place, error)) from error


def _import_error(app: str, package: str, place: str | None, error: BaseException) -> str:
    """Return where and why the import failed; with the traceback unless it is our own error."""
    where = f"{place}: " if place else ""
    if isinstance(error, HookledgerError):
        return f"--app {app}: {where}{error}"
    said = f"{where}{type(error).__name__}: {message_of(error)[:MAX_WORDS]}"
    begun = error.__traceback__
    shown = excerpt(error.with_traceback(begun.tb_next if begun else None), package)
    return f"--app {app} cannot be imported: {said}\n{shown.rstrip()}"
