"""`hookledger serve`, `receive`, `work` and `api`: the long-running processes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from urllib.parse import urlsplit

import click
import msgspec

from ..errors import ConfigError
from ..inbox import Inbox
from ..operate.alerts.sender import LAST
from ..operate.alerts.targets import check_targets
from ..operate.api.listener import load_tokens
from ..operate.api.schema import BASE
from ..operate.health import Receiver
from ..receive.health import PROBE_TOKEN, probe_token
from ..work.loop import Worker
from ..work.settings import EXIT_END
from . import exits
from .answering import AnswerProcess
from .common import inbox_options, run, set_up_logging, setting, status
from .listeners import free_port, listening, override_listeners, url
from .monitor import Monitor, monitor_option, watch_worker
from .output import end_now
from .supervise import API, PARENT_PIPE, Supervisor, other_monitors, report_started, when_parent_ends

LEVELS = click.Choice(["debug", "info", "warning", "error"], case_sensitive=False)
_logs = setting("--log-level", variable="LOG_LEVEL", type=LEVELS, default="info", help="Lowest level to log.")


def _begin_in_json(context: click.Context, option: click.Parameter, given: bool) -> bool:
    """Switch to JSON logs before the application is imported, so that its errors are JSON too."""
    del context, option
    if given:
        set_up_logging(as_json=True)
    return given


_log_json = setting(
    "--log-json",
    variable="LOG_JSON",
    is_flag=True,
    is_eager=True,
    callback=_begin_in_json,
    help="Write only JSON lines to stderr.",
)
_log_dev = click.option("--log-dev", is_flag=True, help="Log each delivery and attempt, in short lines.")
PORTS = click.IntRange(0, 65535)
_host = setting("--host", variable="HOST", help="Address for deliveries; default: settings file, else 127.0.0.1.")
_port = setting("--port", variable="PORT", type=PORTS, help="Port for deliveries; default: settings file, else 8700.")
_operator_host = setting(
    "--operator-host",
    variable="OPERATOR_HOST",
    help="Address for API and health checks; default: settings file, else 127.0.0.1.",
)
_operator_port = setting(
    "--operator-port",
    variable="OPERATOR_PORT",
    type=PORTS,
    help="Port for API and health checks; default: settings file, else 8701.",
)
_concurrency = setting(
    "--concurrency",
    variable="CONCURRENCY",
    type=click.IntRange(1),
    help="Handlers that run concurrently; default: settings file, else 16.",
)


log: logging.Logger = logging.getLogger(__name__)


@click.command()
@_host
@_port
@_operator_host
@_operator_port
@click.option("--no-operator", is_flag=True, help="Leave API and health checks to `hookledger api`.")
@_logs
@_log_json
@_log_dev
@monitor_option
@inbox_options
def receive(
    inbox: Inbox,
    host: str | None,
    port: int | None,
    operator_host: str | None,
    operator_port: int | None,
    no_operator: bool,
    log_level: str,
    log_json: bool,
    log_dev: bool,
    monitor_at: str | None,
) -> None:
    """Accept and record deliveries

    Runs no handlers. Serves the operator API and health checks too, unless --no-operator.
    """
    set_up_logging(log_level, as_json=log_json, dev=log_dev)
    override_listeners(inbox, host, port, operator_host, operator_port)
    _require_sources(inbox)
    inbox.read_secrets()
    if not no_operator:
        load_tokens(inbox)
        check_targets(inbox.settings.alerts)
    _advise(inbox)
    with Monitor("receive", inbox, monitor_at) as monitor:
        said = ["--log-level", log_level, *(["--log-json"] if log_json else []), *(["--log-dev"] if log_dev else [])]
        process = AnswerProcess(inbox, _same_inbox(inbox), said)
        run(_receive(inbox, monitor, process, operates=not no_operator))


def _require_sources(inbox: Inbox) -> None:
    if not any(source.delivered for source in inbox.sources.values()):
        raise ConfigError("no source is configured: add [sources.NAME] to hookledger.toml, or give --app")


def _advise(inbox: Inbox) -> None:
    """Log configuration advice once, at start-up."""
    for line in inbox.advice():
        log.warning("%s", line)


async def _receive(inbox: Inbox, monitor: Monitor, answers: AnswerProcess, *, operates: bool) -> None:
    from ..receive.http import Listener
    from .api import OperatorListener

    intake = inbox.settings.intake
    for one in (intake, inbox.settings.operator) if operates else (intake,):
        free_port(one.host, one.port)
    async with inbox.opened():
        pass  # report a database problem at start-up rather than per delivery
    opened = await inbox.asgi.start(writer_process=intake.writer_process, answerer=answers)
    listener = Listener(opened, opened.limits)
    monitor.metrics.parts.append(opened.metrics.collect)
    monitor.others = answers.monitors
    monitor.watch(opened.ready)
    operating = OperatorListener(inbox, lambda: monitor.operates(inbox.operator)) if operates else None

    def stop() -> None:
        listener.stop()
        if operating:
            operating.stop()

    _on_signals(stop)
    for source in filter(lambda one: one.delivered, inbox.sources.values()):
        where = f"{url(intake)}{source.endpoint.path}"
        status.print(f"Receiving {source.name} ({source.endpoint.contract.title}) at {where}", markup=False)
    serving = [listener.serve(intake.host, intake.port)]
    if operating:
        inbox.operator.other_processes = {**other_monitors("receive"), **answers.monitors}
        inbox.operator.receiver = Receiver(intake.host, intake.port)
        _tell_operators(inbox)
        serving.append(operating.serve())
    report_started()
    try:
        await asyncio.gather(*serving)
    finally:
        stop()
        await inbox.asgi.stop()


def _tell_operators(inbox: Inbox) -> None:
    operator = inbox.settings.operator
    status.print(f"Health at {url(operator)}/readyz", markup=False)
    status.print(_api(inbox), markup=False, soft_wrap=True)


def _api(inbox: Inbox) -> str:
    """Return where the API listens and who may use it, or how to turn it on."""
    operator, callers = inbox.settings.operator, inbox.operator.tokens.callers
    if not callers:
        example = '{ name = "ada", role = "operator", token = "env:HOOKLEDGER_TOKEN_ADA" }'
        return f"API off: no token is configured. To turn it on: [operator] tokens = [{example}]"
    names = ", ".join(f"{caller.name} ({caller.role})" for caller in callers)
    return f"API at {url(operator)}{BASE}, tokens: {names}"


@click.command("api")
@click.option("--receiver", help="Receiver whose health to report, as http://HOST:PORT; default: this process.")
@_operator_host
@_operator_port
@_logs
@_log_json
@monitor_option
@inbox_options
def serve_api(
    inbox: Inbox,
    receiver: str | None,
    operator_host: str | None,
    operator_port: int | None,
    log_level: str,
    log_json: bool,
    monitor_at: str | None,
) -> None:
    """Serve operator API and health checks

    Run it beside `hookledger receive --no-operator`, so that deliveries do not wait for operators' queries.
    """
    set_up_logging(log_level, as_json=log_json)
    operator = listening(inbox.settings.operator, operator_host, operator_port)
    inbox.settings = msgspec.structs.replace(inbox.settings, operator=operator)
    check_targets(inbox.settings.alerts)
    if receiver is not None:
        inbox.operator.receiver = _receiver(receiver)
    with Monitor(API, inbox, monitor_at) as monitor:
        run(_serve_api(inbox, monitor))


def _receiver(url: str) -> Receiver:
    try:
        parts = urlsplit(url)
        if parts.scheme == "http" and parts.hostname and parts.port:
            return Receiver(parts.hostname, parts.port)
    except ValueError:
        pass
    raise ConfigError(f"--receiver {url!r} is not of the form http://HOST:PORT")


async def _serve_api(inbox: Inbox, monitor: Monitor) -> None:
    from .api import OperatorListener

    operator = inbox.settings.operator
    free_port(operator.host, operator.port)
    if inbox.operator.receiver is None:  # with --receiver, that process reports database problems
        async with inbox.opened():
            pass

    def started() -> None:
        monitor.operates(inbox.operator)
        monitor.watch(lambda: inbox.operator.health("/readyz"))
        report_started()

    inbox.operator.other_processes = other_monitors(API)
    listener = OperatorListener(inbox, started)
    _on_signals(listener.stop)
    _tell_operators(inbox)
    await listener.serve()


@click.command()
@click.option("--drain", is_flag=True, help="Stop when no event with a handler here is due.")
@click.option("--source", "sources", multiple=True, help="Process events of this source only; repeatable.")
@click.option("--type", "types", multiple=True, help="Process this type only, or all with PREFIX*; repeatable.")
@_concurrency
@_logs
@_log_json
@_log_dev
@monitor_option
@inbox_options
def work(
    inbox: Inbox,
    drain: bool,
    sources: tuple[str, ...],
    types: tuple[str, ...],
    concurrency: int | None,
    log_level: str,
    log_json: bool,
    log_dev: bool,
    monitor_at: str | None,
) -> None:
    """Process recorded events

    On SIGTERM it finishes running handlers and releases the other claims.

    --source and --type dedicate the worker. Run another one for the other events. Each worker performs the outbox
    of all. --source takes the events of a source with their stages, or SOURCE/STAGE alone.
    """
    set_up_logging(log_level, as_json=log_json, dev=log_dev)
    settings = inbox.settings.work
    if concurrency:
        settings = msgspec.structs.replace(settings, concurrency=concurrency)
    inbox.store()  # fail early on a wrong database URL
    check_targets(inbox.settings.alerts)
    handles = inbox.routes.only(sources, types).handles()
    if not handles:
        status.print("[yellow]No handlers are declared:[/] events will wait, then be skipped.")
    else:
        kinds = ", ".join(f"{one.source}: {one}" for one in handles)
        status.print(f"Working on {kinds}; {settings.concurrency} concurrently.", markup=False)

    if PARENT_PIPE not in os.environ:  # under `serve` the receiver logs it
        inbox.read_secrets(required=False)
        _advise(inbox)

    longest = settings.longest_stop + (LAST if drain else 0.0)
    log.info("this worker stops within %.0f s: give it as long before you kill it", longest)

    def begin(worker: Worker) -> None:
        worker.claims_first = report_started
        _on_signals(worker.stop)
        watch_worker(monitor, inbox, worker)

    async def main() -> None:
        await inbox.work(
            drain=drain,
            sources=sources,
            types=types,
            settings=settings,
            started=begin,
            # A handler that blocks the event loop cannot be stopped; other workers reclaim its claims after the exit.
            stuck=lambda: end_now(exits.STUCK),
        )
        await _leave()

    with Monitor("work", inbox, monitor_at) as monitor:
        run(main())


async def _leave() -> None:
    """Exit even if a task ignores its cancellation; all outcomes are recorded by then."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others and (await asyncio.wait(others, timeout=EXIT_END))[1]:
        log.warning("a cancelled task did not stop; exiting anyway")
        logging.shutdown()
        end_now(exits.OK)


@click.command()
@click.option("--dev", is_flag=True, help="Default to SQLite in this folder, migrate it, --log-dev.")
@_host
@_port
@_operator_host
@_operator_port
@_concurrency
@_logs
@_log_json
@inbox_options
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
            status.print(f"For other commands: export HOOKLEDGER_DATABASE={inbox.database}", markup=False)
    override_listeners(inbox, host, port, operator_host, operator_port)
    _require_sources(inbox)
    inbox.read_secrets()
    inbox.store()  # fail early on a wrong database URL
    check_targets(inbox.settings.alerts)
    intake, operator = inbox.settings.intake, inbox.settings.operator
    common = ["--log-level", log_level, *(["--log-json"] if log_json else [])]
    listen = ["--host", intake.host, "--port", str(intake.port)]
    operators = ["--operator-host", operator.host, "--operator-port", str(operator.port)]
    limit = ["--concurrency", str(concurrency)] if concurrency else []
    each = ["--log-dev"] if dev else []
    commands = {"receive": [*listen, *operators, *common, *each], "work": [*limit, *common, *each]}
    if load_tokens(inbox):  # without tokens only health checks remain, which cost the receiver little
        commands[API] = ["--receiver", url(intake), *operators, *common]
        commands["receive"].append("--no-operator")
    supervisor = Supervisor(
        commands,
        environment=_same_inbox(inbox),
        lock_limit=inbox.settings.work.transaction_limit * 3 + 2,
        shutdown_timeout=inbox.settings.work.longest_stop,
    )
    raise SystemExit(supervisor.run())


def _same_inbox(inbox: Inbox) -> dict[str, str]:
    """Return the environment that leads child processes to the same inbox."""
    given = click.get_current_context().params
    found = {"APP": given["app"], "CONFIG": given["config_file"], "DATABASE": inbox.database}
    same = {f"HOOKLEDGER_{name}": str(value) for name, value in found.items() if value}
    return {**same, PROBE_TOKEN: probe_token()}


def _on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, SIGINT, or when the supervisor that started us ends."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    when_parent_ends(lambda: loop.call_soon_threadsafe(stop))
