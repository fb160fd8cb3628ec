"""`hookledger serve`, `receive`, `work` and `api`: the processes that keep running."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from ..config import IntakeSettings, OperatorSettings
from ..errors import ConfigError
from ..inbox import Inbox
from ..observe import deliveries
from ..operate.health import PROBE_TOKEN, Receiver, probe_token
from ..operator import load_tokens
from ..work.loop import Worker
from . import exits
from .common import finds_inbox, run, set_up_logging, setting, status
from .output import end_now
from .supervise import API, PARENT_PIPE, Supervisor, say_that_it_works, when_parent_ends

LEVELS = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)
logs = setting("--log-level", variable="LOG_LEVEL", type=LEVELS, default="info", help="Lowest level to log.")


def _begin_in_json(context: click.Context, option: click.Parameter, given: bool) -> bool:
    """Before the application is imported: what is wrong with it is said in JSON, too."""
    del context, option
    if given:
        set_up_logging(as_json=True)
    return given


def _tell_deliveries(context: click.Context, option: click.Parameter, given: bool) -> None:
    del context, option
    if given:
        deliveries.turn_on()


log_json = setting(
    "--log-json",
    variable="LOG_JSON",
    is_flag=True,
    is_eager=True,
    callback=_begin_in_json,
    help="Write only JSON lines to stderr.",
)
log_deliveries = click.option(
    "--log-deliveries",
    is_flag=True,
    expose_value=False,
    callback=_tell_deliveries,
    help="Log each delivery and processed event.",
)
PORTS = click.IntRange(0, 65535)
host = setting("--host", variable="HOST", help="Address for deliveries; default: settings file, else 127.0.0.1.")
port = setting("--port", variable="PORT", type=PORTS, help="Port for deliveries; default: settings file, else 8700.")
operator_host = setting(
    "--operator-host",
    variable="OPERATOR_HOST",
    help="Address for API and health checks; default: settings file, else 127.0.0.1.",
)
operator_port = setting(
    "--operator-port",
    variable="OPERATOR_PORT",
    type=PORTS,
    help="Port for API and health checks; default: settings file, else 8701.",
)
concurrency = setting(
    "--concurrency",
    variable="CONCURRENCY",
    type=click.IntRange(1),
    help="Handlers that run concurrently; default: settings file, else 16.",
)


L = TypeVar("L", IntakeSettings, OperatorSettings)

log = logging.getLogger(__name__)


@click.command()
@host
@port
@operator_host
@operator_port
@click.option("--no-operator", is_flag=True, help="Leave API and health checks to `hookledger api`.")
@logs
@log_json
@log_deliveries
@finds_inbox
def receive(
    inbox: Inbox,
    host: str | None,
    port: int | None,
    operator_host: str | None,
    operator_port: int | None,
    no_operator: bool,
    log_level: str,
    log_json: bool,
) -> None:
    """Accept and record deliveries

    Runs no handlers. Serves the operator API and health checks too, unless --no-operator.
    """
    set_up_logging(log_level, as_json=log_json)
    _override_listeners(inbox, host, port, operator_host, operator_port)
    _require_sources(inbox)
    inbox.read_secrets()
    if not no_operator:
        load_tokens(inbox)
    _advise(inbox)
    run(_receive(inbox, operates=not no_operator))


def _override_listeners(
    inbox: Inbox, host: str | None, port: int | None, operator_host: str | None, operator_port: int | None
) -> None:
    intake = _listening(inbox.settings.intake, host, port)
    operator = _listening(inbox.settings.operator, operator_host, operator_port)
    if intake.host == operator.host and intake.port == operator.port:
        raise ConfigError("the intake's listener and the operator's must differ")
    inbox.settings = msgspec.structs.replace(inbox.settings, intake=intake, operator=operator)


def _listening(settings: L, host: str | None, port: int | None) -> L:
    """The settings with what the options say instead; for port 0 one that is free."""
    host, port = _address(host or settings.host), settings.port if port is None else port
    return msgspec.structs.replace(settings, host=host, port=port or _free_port(host))


def _url(listener: IntakeSettings | OperatorSettings) -> str:
    where = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"http://{where}:{listener.port}"


def _require_sources(inbox: Inbox) -> None:
    if not inbox.sources:
        raise ConfigError("there is no source to receive from: add [sources.NAME] to hookledger.toml, or give --app")


def _advise(inbox: Inbox) -> None:
    """Say once, at the start, what may surprise."""
    for line in inbox.advice():
        log.warning("%s", line)


def _require_free(host: str, port: int) -> None:
    """The server shares its port with any other that asks for it, and would split the deliveries between them."""
    _free_port(host, port)


def _free_port(host: str, port: int = 0) -> int:
    """This one, or any for 0; ConfigError if it is taken."""
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
    """An address for a name such as localhost: the server takes no names."""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"no address is known for the host {host!r}") from error


async def _receive(inbox: Inbox, *, operates: bool) -> None:
    from ..receive.http import Listener
    from .api import OperatorListener

    intake = inbox.settings.intake
    for one in (intake, inbox.settings.operator) if operates else (intake,):
        _require_free(one.host, one.port)
    async with inbox.opened():
        pass  # say at once what is wrong with the database, rather than with every delivery
    opened = await inbox.asgi.start(apart=intake.apart)
    listener = Listener(opened, opened.limits)
    operating = OperatorListener(inbox) if operates else None

    def stop() -> None:
        listener.stop()
        if operating:
            operating.stop()

    _on_signals(stop)
    for source in inbox.sources.values():
        where = f"{_url(intake)}{source.endpoint.path}"
        status.print(f"Receiving {source.name} ({source.endpoint.contract.title}) at {where}", markup=False)
    serving = [listener.serve(intake.host, intake.port)]
    if operating:
        inbox.operator.receiver = Receiver(intake.host, intake.port)
        _tell_operators(inbox)
        serving.append(operating.serve())
    try:
        await asyncio.gather(*serving)
    finally:
        stop()
        await inbox.asgi.stop()


def _tell_operators(inbox: Inbox) -> None:
    operator = inbox.settings.operator
    status.print(f"Health at {_url(operator)}/readyz", markup=False)
    status.print(_api(inbox), markup=False, soft_wrap=True)


def _api(inbox: Inbox) -> str:
    """Where it is and who may use it, or how to turn it on."""
    operator, callers = inbox.settings.operator, inbox.operator.tokens.callers
    if not callers:
        example = '{ name = "ada", role = "operator", token = "env:HOOKLEDGER_TOKEN_ADA" }'
        return f"API off: no token is configured. To turn it on: [operator] tokens = [{example}]"
    names = ", ".join(f"{caller.name} ({caller.role})" for caller in callers)
    return f"API at {_url(operator)}/api, tokens: {names}"


@click.command("api")
@click.option("--receiver", help="Receiver whose health to report, as http://HOST:PORT; default: this process.")
@operator_host
@operator_port
@logs
@log_json
@finds_inbox
def serve_api(
    inbox: Inbox,
    receiver: str | None,
    operator_host: str | None,
    operator_port: int | None,
    log_level: str,
    log_json: bool,
) -> None:
    """Serve operator API and health checks

    Run it beside `hookledger receive --no-operator`, so that deliveries do not wait for operators' queries.
    """
    set_up_logging(log_level, as_json=log_json)
    operator = _listening(inbox.settings.operator, operator_host, operator_port)
    inbox.settings = msgspec.structs.replace(inbox.settings, operator=operator)
    if receiver is not None:
        inbox.operator.receiver = _receiver(receiver)
    run(_serve_api(inbox))


def _receiver(url: str) -> Receiver:
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname and parts.port:
            return Receiver(parts.hostname, parts.port)
    except ValueError:
        pass
    raise ConfigError(f"--receiver is written http://HOST:PORT, not {url!r}")


async def _serve_api(inbox: Inbox) -> None:
    from .api import OperatorListener

    operator = inbox.settings.operator
    _require_free(operator.host, operator.port)
    if inbox.operator.receiver is None:  # else it is the receiver who says what is wrong with the database
        async with inbox.opened():
            pass
    listener = OperatorListener(inbox)
    _on_signals(listener.stop)
    _tell_operators(inbox)
    await listener.serve()


@click.command()
@click.option("--drain", is_flag=True, help="Stop when no event with a handler here is due.")
@concurrency
@logs
@log_json
@log_deliveries
@finds_inbox
def work(inbox: Inbox, drain: bool, concurrency: int | None, log_level: str, log_json: bool) -> None:
    """Process recorded events

    On SIGTERM it finishes running handlers and releases the other claims.
    """
    set_up_logging(log_level, as_json=log_json)
    settings = inbox.settings.work
    if concurrency:
        settings = msgspec.structs.replace(settings, concurrency=concurrency)
    inbox.store()  # says what is wrong with the database's name before anything else is said
    if not inbox.routes.handles():
        status.print("[yellow]No handlers are declared:[/] events will wait, then be skipped.")
    else:
        kinds = ", ".join(f"{source}: {pattern}" for source, pattern in inbox.routes.handles())
        status.print(f"Working on {kinds}; {settings.concurrency} concurrently.", markup=False)

    if PARENT_PIPE not in os.environ:  # under `serve` the receiver says it
        inbox.read_secrets(required=False)
        _advise(inbox)

    def begin(worker: Worker) -> None:
        worker.claims_first = say_that_it_works
        _on_signals(worker.stop)

    async def main() -> None:
        await inbox.work(
            drain=drain,
            settings=settings,
            started=begin,
            # What runs cannot be stopped from outside; what it holds is rescued once we are gone.
            stuck=lambda: end_now(exits.STUCK),
        )
        await _leave()

    run(main())


async def _leave() -> None:
    """What swallows its cancellation would keep the process for ever. All that is known is recorded by now."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others and (await asyncio.wait(others, timeout=2.0))[1]:
        log.warning("a cancelled task did not stop; exiting anyway")
        logging.shutdown()
        end_now(exits.OK)


@click.command()
@click.option("--dev", is_flag=True, help="Default to SQLite in this folder, migrate it, log deliveries.")
@host
@port
@operator_host
@operator_port
@concurrency
@logs
@log_json
@log_deliveries
@finds_inbox
def serve(
    inbox: Inbox,
    dev: bool,
    host: str | None,
    port: int | None,
    operator_host: str | None,
    operator_port: int | None,
    concurrency: int | None,
    log_level: str,
    log_json: bool,
) -> None:
    """Run receiver, worker and API under a supervisor

    Each is a separate process, so that neither slow handlers nor operators delay acknowledgements. The API needs a
    configured token.
    """
    set_up_logging(log_level, as_json=log_json)
    if dev:
        inbox.database = inbox.database or "sqlite:///hookledger-dev.db"
        run(inbox.migrate())
        if inbox.database.startswith("sqlite:"):
            status.print(f"To look into it: export HOOKLEDGER_DATABASE={inbox.database}", markup=False)
    _override_listeners(inbox, host, port, operator_host, operator_port)
    _require_sources(inbox)
    inbox.read_secrets()
    inbox.store()  # says what is wrong with the database's name before anything is started
    intake, operator = inbox.settings.intake, inbox.settings.operator
    common = ["--log-level", log_level, *(["--log-json"] if log_json else [])]
    listen = ["--host", intake.host, "--port", str(intake.port)]
    operators = ["--operator-host", operator.host, "--operator-port", str(operator.port)]
    limit = ["--concurrency", str(concurrency)] if concurrency else []
    each = ["--log-deliveries"] if dev or deliveries.wanted() else []
    commands = {"receive": [*listen, *operators, *common, *each], "work": [*limit, *common, *each]}
    if load_tokens(inbox):  # without any there is nothing to read, and health checks cost next to nothing
        commands[API] = ["--receiver", _url(intake), *operators, *common]
        commands["receive"].append("--no-operator")
    supervisor = Supervisor(
        commands,
        environment=_same_inbox(inbox),
        lock_limit=inbox.settings.work.transaction_limit * 3 + 2,
        grace=inbox.settings.work.grace + 10,
    )
    raise SystemExit(supervisor.run())


def _same_inbox(inbox: Inbox) -> dict[str, str]:
    """What leads the children to the inbox that our own options led to."""
    given = click.get_current_context().params
    found = {"APP": given["app"], "CONFIG": given["config_file"], "DATABASE": inbox.database}
    same = {f"HOOKLEDGER_{name}": str(value) for name, value in found.items() if value}
    return {**same, PROBE_TOKEN: probe_token()}


def _on_signals(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT, or the end of the supervisor that started us, mean `stop`."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    when_parent_ends(lambda: loop.call_soon_threadsafe(stop))
