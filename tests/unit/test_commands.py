"""The commands, their help and their environment variables."""

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from hookledger.cli import cli
from hookledger.cli.filters import FilterOption
from hookledger.cli.groups import help_line

COLUMNS = 80
HELP = """
Run
 serve: Run receiver, worker and API under a supervisor
 receive: Accept and record deliveries
 work: Process recorded events
 api: Serve operator API and health checks
 migrate: Create or update the database schema
Look
 events: List events, newest first
 show: Show an event's history and effects
 failures: Group failing events by cause
 lag: Show backlog size and age by type
 top: Show rates, lag, failures and workers live
 effects: List effects by state, and retry one now
 doctor: Check data, database, clocks and workers
 check: Check that every event is accounted for, row by row
 alerts: List alerts sent to people, or test the targets
 audit: List what operators did
 keys: Audit a source's event keys
 providers: List providers or describe one
Decide
 retry: Retry a failed, retrying or needs_review event now
 replay: Process an event again as a new run
 resolve: Decide the outcome of an unknown or failed effect
 approve: Let an event in review pass, for one run
 reject: Close an event in review without processing it
 settle: Record that an event in review was settled by hand
 discard: Close an event without processing it
 reconcile: Import events missing here from the provider's log
 bulk: Retry, replay, discard or resolve matching events
 jobs: List, run or cancel bulk jobs
Control
 pause: Stop processing a source or event type
 resume: Resume a paused source or event type
 circuits: List, trip or reset circuit breakers
Intake
 rejections: List or re-verify rejected requests
 quarantine: List or accept quarantined deliveries
 schemas: Draft, try and compare schemas of events' contents
 import-keys: Import keys processed by another system
Data
 prune: Delete data past its retention period
 erase: Erase the content of finished events
 copy: Copy the whole inbox to another database
Try
 send: Send a signed test delivery
 demo: Inject faults and verify the result
"""
VARIABLES = {
    "HOOKLEDGER_APP": "--app",
    "HOOKLEDGER_CONFIG": "--config",
    "HOOKLEDGER_DATABASE": "--database",
    "HOOKLEDGER_JSON": "--json",
    "HOOKLEDGER_ACTOR": "--actor",
    "HOOKLEDGER_HOST": "--host",
    "HOOKLEDGER_PORT": "--port",
    "HOOKLEDGER_OPERATOR_HOST": "--operator-host",
    "HOOKLEDGER_OPERATOR_PORT": "--operator-port",
    "HOOKLEDGER_CONCURRENCY": "--concurrency",
    "HOOKLEDGER_LOG_LEVEL": "--log-level",
    "HOOKLEDGER_LOG_JSON": "--log-json",
    "HOOKLEDGER_MONITOR": "--monitor",
}


def commands(group: click.Group = cli, *above: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)


ALL = dict(commands())


def shown(*names: str) -> str:
    done = CliRunner().invoke(cli, [*names, "--help"], prog_name="hookledger", terminal_width=COLUMNS)
    assert done.exit_code == 0, done.output
    return done.output


def test_help_shows_every_command_in_its_section_with_its_whole_line() -> None:
    lines = shown().splitlines()
    sections: dict[str, dict[str, str]] = defaultdict(dict)
    title = ""
    for line in lines[lines.index("Run:") :]:
        if line.endswith(":"):
            title = line[:-1]
        elif line.strip() and len(words := line.split(maxsplit=1)) == 2 and words[0] in cli.commands:
            sections[title][words[0]] = words[1]
    told = "\n" + "".join(
        f"{title}\n" + "".join(f" {name}: {line}\n" for name, line in known.items())
        for title, known in sections.items()
    )
    assert told == HELP
    found = {name for known in sections.values() for name in known}
    assert found == {name for name, command in cli.commands.items() if not command.hidden}


@pytest.mark.parametrize("names", [(), *ALL], ids=lambda names: " ".join(names) or "hookledger")
def test_help_fits_80_columns_and_cuts_no_line(names: tuple[str, ...]) -> None:
    text = shown(*names)
    assert not [line for line in text.splitlines() if len(line) > COLUMNS]
    assert "..." not in text.partition("\n\n")[2], "click cuts with three dots"


@pytest.mark.parametrize("names", ALL, ids=" ".join)
def test_help_line_is_short(names: tuple[str, ...]) -> None:
    line = help_line(ALL[names])
    assert 0 < len(line) <= 60, line
    assert "\n" not in line
    assert line[0].isupper()
    assert not line.endswith(".")


def test_only_settings_have_an_environment_variable() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for command in ALL.values():
        for option in command.params:
            if option.envvar:
                found[str(option.envvar)].add(option.opts[0])
    assert found == {variable: {option} for variable, option in VARIABLES.items()}
    assert "auto_envvar_prefix" not in cli.context_settings, "click would make one for every option"


def test_every_setting_that_a_command_takes_has_its_variable() -> None:
    for names, command in ALL.items():
        if command.hidden:  # only a receiver starts it, and says everything
            continue
        given = {option.opts[0] for option in command.params if not option.envvar}
        asked = given & set(VARIABLES.values())
        assert asked <= ({"--port", "--operator-port"} if names == ("demo",) else set()), names


@pytest.mark.parametrize("variable", ["HOOKLEDGER_REASON", "HOOKLEDGER_RETRY_REASON"])
def test_no_variable_gives_a_reason(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "because")
    done = CliRunner().invoke(cli, ["retry", "evt_1"])
    assert (done.exit_code, "Missing option '--reason'" in done.output) == (2, True)


def test_filter_options_are_described_once() -> None:
    filtering = {
        names: [option for option in command.params if isinstance(option, FilterOption)]
        for names, command in ALL.items()
    }
    filters = filtering.pop(("events",))
    assert all(option.help and option.help.split(";")[0][:20] in shown("events") for option in filters)
    others = {names: found for names, found in filtering.items() if found}
    assert others.keys() == {*(("bulk", name) for name in ("retry", "replay", "discard", "resolve")), ("erase",)}
    for names, found in others.items():
        assert [option.opts for option in found] == [option.opts for option in filters]
        text = shown(*names)
        assert all(option.opts[0] in text for option in found)
        assert "see `hookledger events --help`" in " ".join(text.split())
        assert "Only about the object" not in text
