"""Every command of the command line has its call, or a reason why not."""

from collections.abc import Iterator

import click

from hookledger.cli import cli
from hookledger.operate.api.table import CALLS

COMMANDS = {
    "events": "list_events count_events summary",
    "show": "show_event show_request list_conflicts show_timeline show_answers",
    "alerts list": "list_alerts",
    "audit": "list_actions",
    "failures": "list_failures",
    "lag": "list_lag",
    "top": "list_rates list_lag list_failures list_circuits list_workers",
    "effects list": "list_effects",
    "effects try": "try_effect",
    "jobs list": "list_jobs",
    "jobs show": "show_job",
    "jobs items": "list_job_items",
    "jobs cancel": "cancel_job",
    "bulk retry": "preview_job make_job",
    "bulk replay": "preview_job make_job",
    "bulk discard": "preview_job make_job",
    "bulk resolve": "preview_job make_job",
    "pause": "list_pauses pause_source",
    "resume": "resume_source",
    "quarantine list": "list_quarantine show_quarantined",
    "quarantine accept": "accept_quarantined",
    "rejections list": "list_rejections count_rejections show_rejection",
    "rejections recheck": "recheck_rejections accept_rejections",
    "keys": "audit_keys",
    "import-keys": "compare_keys import_keys",
    "check": "show_consistency",
    "schemas drift": "list_fields",
    "doctor": "doctor health list_workers",
    "circuits list": "list_circuits",
    "circuits trip": "trip_circuit",
    "circuits reset": "reset_circuit",
    "providers": "list_providers show_provider list_sources",
    "retry": "retry_event",
    "replay": "preview_replay replay_event",
    "discard": "discard_event",
    "approve": "approve_event",
    "reject": "reject_event",
    "settle": "settle_event",
    "resolve": "resolve_effect",
    "reconcile": "reconcile_source list_reconciliations repair_event repair_object",
    "prune": "preview_prune prune",
    "erase": "erase_event erase_events",
}
WITHOUT = {
    "serve": "a process",
    "receive": "a process",
    "work": "a process",
    "api": "a process",
    "answering": "a process that only a receiver starts",
    "migrate": "the schema is changed by whoever deploys",
    "copy": "needs the other database's URL, and stops this one",
    "send": "a provider's side, for trying things out",
    "demo": "a provider's side, for trying things out",
    "alerts test": "shows whether the caller's own process reaches the targets",
    "schemas infer": "writes a file beside the application's code, for its author",
    "schemas check": "tries files beside the application's code, for their author",
    "jobs run": "workers run jobs; GET /jobs/{job} says how far they are",
}
ITS_OWN = {"openapi"}


def names(group: click.Group, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from names(command, f"{before}{name} ")
        else:
            yield before + name


def test_every_command_has_its_call() -> None:
    commands = set(names(cli))
    assert commands == COMMANDS.keys() | WITHOUT.keys(), "say here which call a new command has, or why it has none"
    assert not COMMANDS.keys() & WITHOUT.keys()


def test_every_call_is_that_of_a_command() -> None:
    named = {call for calls in COMMANDS.values() for call in calls.split()}
    assert named | ITS_OWN == {call.name for call in CALLS}
