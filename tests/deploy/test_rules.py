"""The rules for Prometheus: promtool provokes every alert, and every expression names metrics that exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import click
import promql_parser
import pytest
import yaml

from hookledger.cli import cli
from hookledger.observe.metrics.table import ANSWERS
from hookledger.receive.reasons import REASONS, UNPROVED
from tests.deploy.expressions import BUILT_IN, PROMETHEUS, ROOT, alerts, expressions, metrics, recorded, rules

NAME = re.compile(r"^[A-Za-z_:][\w:]*$")


def run(promtool: str, *arguments: str) -> None:
    done = subprocess.run(
        [promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_valid(promtool: str) -> None:
    run(promtool, "check", "rules", "rules.yml")


def test_the_settings_are_valid(promtool: str) -> None:
    run(promtool, "check", "config", "prometheus.yml")


# proves R55
def test_every_alert_fires_and_stays_quiet(promtool: str) -> None:
    run(promtool, "test", "rules", "rules_test.yml")


def cases() -> list[dict[str, Any]]:
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yml").read_text())["tests"]
    return [case for test in tests for case in test["alert_rule_test"]]


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert {case["alertname"] for case in cases() if case["exp_alerts"]} == alerts().keys()
    assert {case["alertname"] for case in cases() if not case["exp_alerts"]} == alerts().keys()


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    for name, rule in alerts().items():
        assert rule["annotations"].keys() == {"summary", "description", "action"}, name
        assert rule["labels"]["severity"] in ("critical", "warning"), name


def test_the_how_to_page_has_every_alert() -> None:
    """In the words of its annotations."""
    page = (ROOT / "docs/how-to/prometheus.md").read_text()
    found = re.findall(r"^### (Hookledger\w+)$", page, re.MULTILINE)
    assert found == list(alerts())
    sections = dict(zip(found, re.split(r"^### Hookledger\w+$", page, flags=re.MULTILINE)[1:], strict=True))
    for name, rule in alerts().items():
        for words in (rule["annotations"]["description"], rule["annotations"]["action"]):
            assert words in sections[name], f"{name}: docs/how-to/prometheus.md does not say: {words}"


def test_the_commands_that_they_name_exist() -> None:
    said = " ".join(rule["annotations"]["action"] for rule in alerts().values())
    named = re.findall(r"`hookledger ([^`]+)`", said)
    assert len(named) > 15
    for words in named:
        command: click.Command = cli
        for word in words.split():
            if isinstance(command, click.Group) and word in command.commands:
                command = command.commands[word]
            elif word.startswith("--"):
                listing = command.commands["list"] if isinstance(command, click.Group) else command
                assert word in {name for option in listing.params for name in option.opts}, words
            else:
                assert command is not cli, words


# ── expressions ──


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_every_expression_names_metrics_that_exist(place: str, expression: str) -> None:
    del place
    names = set(_names(promql_parser.parse(expression)))
    assert names, "it names none"
    assert names <= metrics() | recorded() | BUILT_IN


def test_a_mistake_would_be_found() -> None:
    with pytest.raises(ValueError, match=r"."):
        promql_parser.parse("sum by (source (hookledger_up)")
    assert set(_names(promql_parser.parse("1 - sum(rate(hookledger_requets_total[5m])) / -up"))) == {
        "hookledger_requets_total",
        "up",
    }


def test_every_recorded_rule_is_new() -> None:
    assert len(recorded()) == sum("record" in rule for rule in rules())
    assert all(NAME.match(name) and ":" in name for name in recorded())


def test_the_signature_failures_are_those_of_the_table() -> None:
    """The reasons by which `verify` rejects, and no others."""
    [rule] = [rule for rule in rules() if rule.get("record") == "source:hookledger_unproved:rate10m"]
    [answer] = [one for one in ANSWERS if one.name == "Signature failures"]
    for expression in (rule["expr"], answer.promql):
        [pattern] = re.findall(r'reason=~"([^"]+)"', expression)
        assert {reason for reason in REASONS if re.fullmatch(pattern, reason)} == set(UNPROVED)


def test_a_rollback_that_a_handler_decided_on_counts_nowhere() -> None:
    [answer] = [one for one in ANSWERS if one.name == "Rollback rate"]
    found = [one for _, one in expressions() if "hookledger_rollbacks_total" in one]
    assert len(found) >= 3, "rules and a panel"
    for expression in (answer.promql, *found):
        assert expression.count("hookledger_rollbacks_total") == expression.count('{cause!="decision"}'), expression


def _names(node: Any) -> Iterator[str]:
    """Every metric in an expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node.name or ""
    for part in ("vector_selector", "expr", "lhs", "rhs", "param"):
        inner = getattr(node, part, None)
        if inner is not None:
            yield from _names(inner)
    for inner in getattr(node, "args", None) or ():
        yield from _names(inner)
