"""The table of metrics, and the text that is made of it."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import hookledger
from hookledger.observe.metrics.counts import Histogram, WorkCounts
from hookledger.observe.metrics.process import ProcessMetrics, silent
from hookledger.observe.metrics.samples import Samples, in_text, joined
from hookledger.observe.metrics.table import ANSWERS, BY_NAME, PREFIX, TABLE
from hookledger.states import AttemptOutcome

ADDED = re.compile(r"samples\.add\(\s*\"(\w+)\"")


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of a text, by its name and labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, f"{key} stands twice"
            found[key] = sample.value
    return found


def test_names_follow_the_rules_of_prometheus() -> None:
    assert len(BY_NAME) == len(TABLE), "a name stands twice"
    for metric in TABLE:
        assert re.fullmatch(r"[a-z][a-z_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram"), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert "process" not in metric.labels


def test_every_metric_of_the_table_is_collected_and_no_other() -> None:
    source = Path(hookledger.__file__).parent
    added = {name for path in source.rglob("*.py") for name in ADDED.findall(path.read_text())}
    assert added == set(BY_NAME)


def test_the_figures_use_metrics_that_exist() -> None:
    for answer in ANSWERS:
        names = re.findall(rf"{PREFIX}\w+", answer.promql)
        assert names
        for name in names:
            metric = BY_NAME[name.removeprefix(PREFIX).removesuffix("_bucket")]
            labels = re.findall(r"by \(([^)]*)\)", answer.promql) + [
                label for labels in re.findall(r"{([^}]*)}", answer.promql) for label in re.findall(r"(\w+)=", labels)
            ]
            named = {one.strip() for group in labels for one in group.split(",")}
            assert named <= {*metric.labels, "le"}, answer


def test_a_histogram_counts_each_value_once() -> None:
    found = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 3.0):
        found.observe(value)
    assert (found.counts, found.sum) == ([2, 2, 1], 7.5)
    samples = Samples("receive")
    samples.add("commit_seconds", found)
    told = values(in_text(samples))
    buckets = {dict(labels)["le"]: value for (name, labels), value in told.items() if name.endswith("_bucket")}
    assert buckets == {"1.0": 2.0, "2.0": 4.0, "+Inf": 5.0}
    assert told["hookledger_commit_seconds_count", (("process", "receive"),)] == 5.0


def test_processes_are_joined_with_each_metric_once() -> None:
    own, other = ProcessMetrics("receive"), ProcessMetrics("api")
    own.parts.append(lambda samples: samples.add("requests_total", 3, 'a "name"\nwith\\marks'))
    text = joined([own.text(), other.text(), silent("work")])
    assert text.count("# HELP hookledger_up ") == text.count("# TYPE hookledger_up ") == 1
    told = values(text)
    up = {dict(labels)["process"]: value for (name, labels), value in told.items() if name == "hookledger_up"}
    assert up == {"receive": 1.0, "api": 1.0, "work": 0.0}
    [labels] = [dict(labels) for (name, labels) in told if name == "hookledger_requests_total"]
    assert labels == {"source": 'a "name"\nwith\\marks', "process": "receive"}


def test_an_unknown_metric_or_a_missing_label_is_a_mistake() -> None:
    samples = Samples()
    with pytest.raises(KeyError):
        samples.add("made_up", 1)
    with pytest.raises(AssertionError):
        samples.add("requests_total", 1)


def test_only_the_first_run_of_an_event_has_a_delay_and_only_its_end() -> None:
    counts = WorkCounts()
    counts.expect("stripe", "app.paid")
    assert counts.attempts["stripe", "app.paid", AttemptOutcome.FAILED] == 0
    counts.ended("stripe", "app.paid", AttemptOutcome.RETRYING, 0.1, 5.0)
    counts.ended("stripe", "app.paid", AttemptOutcome.PROCESSED, 0.1, None)
    assert not counts.settle_delay
    counts.ended("stripe", "app.paid", AttemptOutcome.PROCESSED, 0.1, -3.0)
    assert sum(counts.settle_delay["stripe"].counts) == 1
    assert counts.settle_delay["stripe"].sum == 0.0, "the clocks of two machines may differ"
    assert sum(counts.attempt_seconds["app.paid"].counts) == 3
