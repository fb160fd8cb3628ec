"""Write docs/reference from the code: `python docs/generate.py`. A test fails when they differ."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

ROOT = Path(__file__).resolve().parent.parent
MADE = "<!-- Made by docs/generate.py from the code: change it there. -->\n\n"
TAG = re.compile(r"^# proves R\d+(?:, R\d+)*$")


def settings() -> str:
    from hookledger.config import (
        AlertSettings,
        AnswerSettings,
        Config,
        ConsistencySettings,
        CurrentSettings,
        IntakeSettings,
        Limits,
        MonitorSettings,
        OperatorSettings,
        ReconcileSettings,
        RetentionSettings,
        RetryPolicy,
        SchemaSettings,
        SecretSettings,
        SourceRetention,
        SourceSettings,
        TargetSettings,
        TokenSettings,
        WorkSettings,
    )
    from hookledger.effects.circuit import CircuitSettings
    from hookledger.effects.outbox import OutboxSettings
    from hookledger.receive.rejections import SampleSettings

    parts = [
        "# Settings\n\n",
        MADE,
        "In `hookledger.toml`, or `Inbox(settings=Config(…))`. Durations are seconds, or text such as `500ms`, "
        "`30s`, `15m`, `24h`, `3d`. An unknown key is an error that names the nearest known one.\n",
    ]
    tables: list[tuple[str, type[Any]]] = [
        ("Top level", Config),
        ("[intake]", IntakeSettings),
        ("[intake.limits]", Limits),
        ("[intake.rejections]", SampleSettings),
        ("[operator]", OperatorSettings),
        ("One of [operator] tokens", TokenSettings),
        ("[work]", WorkSettings),
        ("[work.retry]", RetryPolicy),
        ("[work.outbox]", OutboxSettings),
        ("[work.circuit]", CircuitSettings),
        ("[answers]", AnswerSettings),
        ("[monitor]", MonitorSettings),
        ("[retention]", RetentionSettings),
        ("[alerts]", AlertSettings),
        ("[alerts.targets.NAME]", TargetSettings),
        ("[consistency]", ConsistencySettings),
        ("[schemas]", SchemaSettings),
        ("[sources.NAME]", SourceSettings),
        ("One of [sources.NAME] secrets", SecretSettings),
        ("[sources.NAME.current]", CurrentSettings),
        ("[sources.NAME.reconcile]", ReconcileSettings),
        ("[sources.NAME.retention]", SourceRetention),
    ]
    for title, kind in tables:
        told = _attribute_docs(kind)
        parts.append(f"\n## {title}\n\n{_first_line(kind)}\n\n| key | default | meaning |\n|---|---|---|\n")
        for field in msgspec.structs.fields(kind):
            if not _is_table(field.type):
                parts.append(f"| `{field.encode_name}` | {_default(field)} | {told.get(field.name, '')} |\n")
    parts.append(_hmac_options())
    return "".join(parts)


def _hmac_options() -> str:
    from hookledger.providers.generic import Options

    told = _attribute_docs(Options)
    lines = [
        '\n## [sources.NAME.options]\n\nFor `provider = "hmac"`: how the provider signs with a keyed hash. '
        "Write a field as `header:NAME` or `body:PATH.TO.FIELD`.\n\n```toml\n[sources.shop]\n"
        'provider = "hmac"\nsecrets = ["env:SHOP_SECRET"]\n\n[sources.shop.options]\nheader = "X-Shop-Signature"\n'
        'encoding = "base64"\nid = "body:id"\ntype = ["body:event"]\n```\n\n'
        "| key | default | meaning |\n|---|---|---|\n"
    ]
    fields = msgspec.structs.fields(Options)
    return "".join(lines + [f"| `{one.name}` | {_default(one)} | {told[one.name]} |\n" for one in fields])


def _is_table(kind: Any) -> bool:
    return (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or any(
        name in str(kind) for name in ("SourceSettings", "ReconcileSettings", "TargetSettings")
    )


def _default(field: Any) -> str:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None or value is msgspec.UNSET or value in ([], {}, (), frozenset()):
        return "none"
    if value == float("inf"):
        return "`never`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{_duration(value)}`" if type(value).__name__ == "Seconds" else f"`{value}`"


def _duration(value: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if value >= size and value % size == 0:
            return f"{value / size:g}{unit}"
    return f"{value * 1000:g}ms"


def _attribute_docs(kind: type[Any]) -> dict[str, str]:
    """Return the string below each attribute of a class."""
    [body] = [node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
    told = {}
    for node, after in pairwise(body):
        text = after.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and text is not None:
            told[node.target.id] = " ".join(str(text.value).split())
    return told


def _first_line(kind: Any) -> str:
    return (inspect.getdoc(kind) or "").split("\n")[0]


def states() -> str:
    from hookledger.states import TRANSITIONS, State

    told = _enum_docs(State)
    lines = ["# States of an event\n\n", MADE, "| state | meaning |\n|---|---|\n"]
    lines += [f"| `{state}` | {told[state.name]} |\n" for state in State]
    lines += ["\n```mermaid\nstateDiagram-v2\n    [*] --> pending\n"]
    for transition in TRANSITIONS:
        lines += [f"    {s} --> {transition.target}: {transition.name}\n" for s in sorted(transition.sources)]
    intake = "Intake may also record an event as `skipped` (type not accepted) or `failed` (unreadable).\n"
    attempts = {t.name: t.attempt for t in TRANSITIONS if t.attempt}
    written = ", ".join(f"`{name}` {outcome}" for name, outcome in attempts.items())
    intake += f"\nThe attempt outcome that a transition writes: {written}.\n"
    return "".join([*lines, _transitions(TRANSITIONS), "\n", intake, _effect_states()])


def _transitions(table: Any) -> str:
    rows = [f"| `{t.name}` | {', '.join(sorted(t.sources))} | {t.target} | {t.sentence} |\n" for t in table]
    return f"```\n\n| transition | from | to | |\n|---|---|---|---|\n{''.join(rows)}"


def _effect_states() -> str:
    from hookledger.states import EFFECT_TRANSITIONS, CallOutcome, EffectKind, EffectState, Repeat

    lines = []
    for title, kind in (
        ("States of an effect", EffectState),
        ("Kinds of effects", EffectKind),
        ("Outcomes of a call", CallOutcome),
        ("Policies for an unknown outcome", Repeat),
    ):
        told = _enum_docs(kind)
        lines.append(f"\n# {title}\n\n| | meaning |\n|---|---|\n")
        lines += [f"| `{member}` | {told[member.name]} |\n" for member in kind]
        if kind is EffectState:
            lines.append("\n```mermaid\nstateDiagram-v2\n")
            for t in EFFECT_TRANSITIONS:
                sources = sorted(t.sources) or ["[*]"]
                lines += [f"    {source} --> {t.target}: {t.name}\n" for source in sources]
            lines.append(_transitions(EFFECT_TRANSITIONS))
    return "".join(lines)


def _enum_docs(kind: Any) -> dict[str, str]:
    [body] = [node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
    told = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(after, ast.Expr):
            assert isinstance(after.value, ast.Constant)
            told[node.targets[0].id] = str(after.value.value)
    return told


def command_line() -> str:
    from hookledger.cli import cli, exits
    from hookledger.cli.filters import FilterOption
    from hookledger.cli.groups import help_line

    lines = ["# The command line\n\n", MADE]
    for title, names in cli.sections.items():
        lines.append(f"**{title}**\n\n| command | |\n|---|---|\n")
        lines += [f"| `{name}` | {help_line(cli.commands[name])} |\n" for name in names] + ["\n"]
    variables: dict[str, set[str]] = defaultdict(set)
    for name, command in _commands(cli):
        context = click.Context(command)
        words = [name, *(p.make_metavar(context) for p in command.params if p.param_type_name == "argument")]
        lines.append(f"## hookledger {' '.join(words)}\n\n{_help(command)}\n\n")
        options = [option for option in command.params if isinstance(option, click.Option)]
        for option in options:
            if option.envvar:
                variables[str(option.envvar)].add(option.opts[0])
        own = [option for option in options if not isinstance(option, FilterOption)]
        lines += [_option_table(own), "\n"] if own else []
        if len(own) < len(options):
            lines.append("Also takes the [filter options](#filter-options).\n\n")
    filters = [option for option in cli.commands["events"].params if isinstance(option, FilterOption)]
    lines.append("## Filter options\n\nThey select events; all that are given must match.\n\n")
    lines += [_option_table(filters), "\n## Environment variables\n\n"]
    lines.append("Only settings have one: no variable confirms an action or gives a reason.\n\n")
    lines.append("| variable | option |\n|---|---|\n")
    for variable, given in sorted(variables.items()):
        lines.append(f"| `{variable}` | `{'`, `'.join(sorted(given))}` |\n")
    lines.append("\n## Exit codes\n\n| code | name | |\n|---|---|---|\n")
    told = _module_docs(exits)
    codes = sorted((str(value), name) for name, value in vars(exits).items() if name.isupper())
    lines += [f"| {value} | {name} | {told.get(name, 'Success.')} |\n" for value, name in codes]
    return "".join(lines)


def _help(command: click.Command) -> str:
    """Return what --help prints; paragraphs that keep their lines become lists."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(_list(text) if text.startswith("\b\n") else text for text in paragraphs)


def _list(text: str) -> str:
    lines = text.removeprefix("\b\n").split("\n")
    return "\n".join(line if line.startswith(" ") else f"- {line}" for line in lines)


def _option_table(options: list[click.Option]) -> str:
    rows = [f"| `{option.opts[0]}` | {option.help or ''} |\n" for option in options]
    return f"| option | |\n|---|---|\n{''.join(rows)}"


def _commands(group: click.Group, *above: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its full name; a group before its commands."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        yield " ".join((*above, name)), command
        if isinstance(command, click.Group):
            yield from _commands(command, *above, name)


def _module_docs(module: Any) -> dict[str, str]:
    body = ast.parse(inspect.getsource(module)).body
    return {
        node.targets[0].id: str(after.value.value)
        for node, after in pairwise(body)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def providers() -> str:
    """Describe every contract as `hookledger providers` does."""
    from hookledger.providers import words
    from hookledger.providers.catalogue import contracts

    known = [contract for _, contract in sorted(contracts().items())]
    parts = [
        "# Providers\n\n",
        MADE,
        f"{len(known)} contracts. [Set up a source](../how-to/sources.md) says how to use one, "
        "[CONTRIBUTING](../../CONTRIBUTING.md#add-a-provider) how to add one.\n\n"
        "*Covers*: the part of the body that the proof covers. *Id*: whether it covers the event key. *Retries*: how "
        "long the provider redelivers. *Confirmed*: the weaker of signature and event; **no**: from memory.\n\n"
        "| name | provider | authenticated by | covers | id | retries | confirmed |\n|---|---|---|---|---|---|---|\n",
    ]
    for contract in known:
        cells = (
            f"[`{contract.name}`](#{contract.name})",
            contract.title,
            words.kind(contract.scheme),
            contract.scheme.coverage,
            words.id_signed(contract),
            words.retry_window(contract),
            words.weakest(contract),
        )
        parts.append(f"| {' | '.join(cells)} |\n")
    for contract in known:
        parts.append(f"\n## {contract.name}\n\n{contract.title}.\n\n| | |\n|---|---|\n")
        parts += [f"| {fact.name} | {_cell(fact.value)} |\n" for fact in words.facts(contract) if fact.name != "note"]
        parts += [f"\n- {fact.value}" for fact in words.facts(contract) if fact.name == "note"]
        graded = "; ".join(f"{fact.name}: {fact.value}" for fact in words.confirmed(contract))
        read_in = f" Read in: {'; '.join(contract.confirmed.sources)}." if contract.confirmed.sources else ""
        parts.append(f"\n\nHow this is known: {graded}.{read_in}\n\n```toml\n{words.example(contract)}```\n")
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


class Requirement(NamedTuple):
    """`missing` is None when it is done, empty when nothing is built."""

    area: str
    text: str
    missing: str | None

    @property
    def state(self) -> str:
        partly = f"partly; missing: {self.missing}" if self.missing else "not yet"
        return "done" if self.missing is None else partly


def known_requirements() -> dict[str, Requirement]:
    found = {}
    for area, entries in tomllib.loads((ROOT / "docs" / "requirements.toml").read_text()).items():
        for name, entry in entries.items():
            whole = {"text": entry} if isinstance(entry, str) else entry
            missing = "" if whole.get("not_yet") else whole.get("partly")
            found[name] = Requirement(area, whole["text"], missing)
    return found


def proofs() -> dict[str, list[str]]:
    """The tests of each requirement, as `file::test`: a line `# proves R17` stands directly above the test."""
    found = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        lines = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                for name in re.findall(r"R\d+", lines[first - 2]) if TAG.match(lines[first - 2]) else ():
                    found[name].append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def requirements() -> str:
    """Each requirement with its state and the tests that prove it best."""
    known, tests = known_requirements(), proofs()
    states = Counter(entry.state.partition(";")[0] for entry in known.values())
    lines = [
        "# Requirements\n\n",
        "<!-- Made by docs/generate.py from docs/requirements.toml and the tests: change it there. -->\n\n",
        f"{states['done']} are done, {states['partly']} partly, {states['not yet']} not yet. Each names the one to "
        "three tests that prove it best.\n",
    ]
    for area, entries in groupby(known.items(), key=lambda pair: pair[1].area):
        lines.append(f"\n## {area}\n\n| | requirement | state | tests |\n|---|---|---|---|\n")
        for name, entry in entries:
            proved = "<br>".join(f"`{test}`" for test in tests[name])
            lines.append(f"| {name} | {entry.text} | {entry.state} | {proved} |\n")
    return "".join(lines)


def api() -> str:
    """Describe every call of the JSON API."""
    from hookledger.operate.api.auth import Role
    from hookledger.operate.api.errors import TABLE, WORDS
    from hookledger.operate.api.schema import BASE, INTRODUCTION
    from hookledger.operate.api.table import CALLS

    told = _enum_docs(Role)
    lines = ["# The API\n\n", MADE, f"{INTRODUCTION} [Use the API](../how-to/api.md) shows how.\n\n"]
    lines += [f"The description for programs (OpenAPI 3.1) is at `{BASE}/openapi.json`.\n\n| role | |\n|---|---|\n"]
    lines += [f"| `{role}` | {told[role.name]} |\n" for role in Role]
    for call in CALLS:
        lines.append(f"\n## {call.method} {BASE}{call.path}\n\n{call.words}\n\nRole: {call.role}.\n")
        lines.append(_fields("Query", call.query))
        lines.append(_fields("Body", call.body) if call.takes_body else "")
        lines.append(f"\nAnswer: {_kind(call.answer)}.\n")
    lines.append("\n## Errors\n\n| status | codes | |\n|---|---|---|\n")
    for status, words in WORDS.items():
        codes = dict.fromkeys(f"`{code}`" for _, given, code in TABLE if given == status)
        lines.append(f"| {status} | {', '.join(codes)} | {words} |\n")
    return "".join(lines)


def _fields(title: str, kind: Any) -> str:
    fields = msgspec.structs.fields(kind)
    told = {name: words for base in reversed(kind.__mro__[:-2]) for name, words in _told(base).items()}
    rows = [f"| `{field.encode_name}` | {_default(field)} | {told.get(field.name, '')} |\n" for field in fields]
    return f"\n| {title} | default | |\n|---|---|---|\n{''.join(rows)}" if rows else ""


def _told(kind: type[Any]) -> dict[str, str]:
    return _attribute_docs(kind) if kind.__module__.startswith("hookledger") else {}


def _kind(answer: Any) -> str:
    if not (isinstance(answer, type) and issubclass(answer, msgspec.Struct)):
        return "a JSON object"
    return ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(answer))


def metrics() -> str:
    """Every metric, and the figures that people ask for."""
    from hookledger.observe.metrics.counts import ANSWERS as ANSWERED
    from hookledger.observe.metrics.counts import ENDED, LOOKUPS, ROLLBACKS, UNAVAILABLE
    from hookledger.observe.metrics.table import ANSWERS, PREFIX, PROCESS, PROCESSES, TABLE
    from hookledger.operate.gauges import BACKLOG, OPEN_EFFECTS, QUEUE
    from hookledger.receive.reasons import REASONS
    from hookledger.states import CallOutcome, DeliveryOutcome
    from hookledger.store.ops.alert_messages import MessageState

    lines = [
        "# Metrics\n\n",
        MADE,
        "[Monitor Hookledger](../how-to/monitor.md) says where `/metrics` is. Labels come from your configuration, "
        "from what your application declares, or from the sets below, whatever strangers send; a request of no "
        f'source has `source=""`. Metrics of a process also have the label `{PROCESS}`: `answering` runs handlers '
        "that answer, for `receive`, and `app` is your own application. Counters begin at 0 when a process starts. "
        "What the database says has no such label; take the `max` where "
        "several processes are scraped.\n\n## The figures that you need\n\n"
        "| figure | PromQL |\n|---|---|\n",
    ]
    lines += [f"| {one.name} | `{_cell(one.promql)}` |\n" for one in ANSWERS]
    for owner, entries in groupby(sorted(TABLE, key=lambda one: one.of), key=lambda one: one.of):
        lines.append(f"\n## Of {_OWNERS[owner]}\n\n| metric | kind | labels | |\n|---|---|---|---|\n")
        for one in entries:
            labels = ", ".join(f"`{label}`" for label in one.labels)
            lines.append(f"| `{PREFIX}{one.name}` | {one.kind} | {labels} | {one.help} |\n")
    sets: dict[str, Any] = {
        "`outcome` of `deliveries_total`": list(DeliveryOutcome),
        "`result` of `answers_total`": ANSWERED,
        "`result` of `answer_lookups_total`": LOOKUPS,
        "`outcome` of `attempts_total`": ENDED,
        "`outcome` of `effect_calls_total`": list(CallOutcome),
        "`cause` of `unavailable_total`": UNAVAILABLE,
        "`cause` of `rollbacks_total`": ROLLBACKS,
        "`state` of `queue_events`": QUEUE,
        "`state` of `backlog_events`": BACKLOG,
        "`state` of `outbox_effects`": OPEN_EFFECTS,
        "`state` of `alert_messages`": list(MessageState),
        f"`{PROCESS}` of every process": PROCESSES,
        "`reason` of `rejections_total`": REASONS,
    }
    lines.append("\n## Closed sets\n\n| label | values |\n|---|---|\n")
    lines += [f"| {label} | {', '.join(f'`{value}`' for value in values)} |\n" for label, values in sets.items()]
    lines.append("\n## Buckets\n\n| histogram | upper bounds |\n|---|---|\n")
    bounds = {one.name: ", ".join(f"{bound:g}" for bound in one.buckets) for one in TABLE if one.buckets}
    lines += [f"| `{PREFIX}{name}` | {words} |\n" for name, words in bounds.items()]
    return "".join(lines)


_OWNERS = {
    "every process": "every process",
    "receive": "the receiver, and of guarded routes",
    "work": "what runs handlers: the worker, the answering process, and guarded routes",
    "database": "the database, by `api`, or by `receive` with the operator's listener",
}


def logs() -> str:
    """Describe every log line of events, and every field."""
    from hookledger.observe.lines import FIELDS, LINES, log, page_level

    lines = [
        "# Log lines\n\n",
        MADE,
        f"Their logger is `{log.name}`. Messages are constant, values are fields; a field without a value is left "
        "out. Secrets, signatures, payloads and arguments of effects are never logged. The message of an exception "
        "is yours: it may quote a payload. [Logs and traces](../how-to/logs-and-traces.md) shows how to use "
        "them.\n\n*Limited*: ten lines, then one each second; `left_out` counts the others.\n\n"
        "| message | level | when | fields |\n|---|---|---|---|\n",
    ]
    for line in LINES:
        fields = ", ".join(f"`{field}`" for field in line.fields)
        lines.append(f"| `{line.message}` | {page_level(line)} | {line.words} | {fields} |\n")
    lines.append("\n## Fields\n\n| field | meaning |\n|---|---|\n")
    lines += [f"| `{field}` | {words} |\n" for field, words in FIELDS.items()]
    return "".join(lines)


def alerts() -> str:
    """Describe every kind of alert."""
    from hookledger.operate.alerts.kinds import KINDS

    lines = [
        "# Alerts\n\n",
        MADE,
        "The kinds of alerts to people. [Alert people](../how-to/alert.md) says how to get them. Occurrences of one "
        "kind and topic within a window (`[alerts] window`) are one message. *Severity* is PagerDuty's.\n",
    ]
    for kind, one in KINDS.items():
        lines.append(f"\n## {kind}\n\n{one.condition}\n\n| | |\n|---|---|\n| severity | {one.severity} |\n")
        lines.append(f"| one message for each | {one.topic} |\n| says | 2 {one.many} |\n")
        lines.append(f"| what to do | {one.do} |\n| begin with | `{one.command}` |\n")
    return "".join(lines)


PAGES = {
    "alerts.md": alerts,
    "api.md": api,
    "logs.md": logs,
    "metrics.md": metrics,
    "settings.md": settings,
    "states.md": states,
    "command-line.md": command_line,
    "providers.md": providers,
    "requirements.md": requirements,
}


def main() -> int:
    for name, page in PAGES.items():
        (ROOT / "docs" / "reference" / name).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
