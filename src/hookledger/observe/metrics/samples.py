"""Samples of metrics, and the text in which Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from .counts import Histogram
from .table import BY_NAME, PREFIX, PROCESS, TABLE, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Value = float | Histogram


class Samples:
    """What is known at one moment. `process`: whose; empty for what the database says."""

    def __init__(self, process: str = "") -> None:
        self.process = process
        self._found: dict[str, list[tuple[list[str], Value]]] = {}

    def add(self, name: str, value: Value, *labels: str) -> None:
        """Add the value of a metric of the table, with a value for each of its labels."""
        metric = BY_NAME[name]
        assert len(labels) == len(metric.labels), f"{name} has the labels {metric.labels}"
        self._found.setdefault(name, []).append((list(labels), value))

    def families(self) -> Iterator[Family]:
        for metric in TABLE:
            if metric.name in self._found:
                yield self._family(metric)

    def _family(self, metric: Metric) -> Family:
        names = [*metric.labels, PROCESS] if self.process else list(metric.labels)
        also = [self.process] if self.process else []
        name = PREFIX + metric.name
        family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        if metric.kind == "histogram":
            family = HistogramMetricFamily(name, metric.help, labels=names)
        elif metric.kind == "counter":
            family = CounterMetricFamily(name, metric.help, labels=names)
        else:
            family = GaugeMetricFamily(name, metric.help, labels=names)
        for labels, value in self._found[metric.name]:
            if isinstance(family, HistogramMetricFamily):
                assert isinstance(value, Histogram)
                family.add_metric([*labels, *also], *_cumulative(value))
            else:
                assert not isinstance(value, Histogram)
                family.add_metric([*labels, *also], value)
        return family


def _cumulative(found: Histogram) -> tuple[list[tuple[str, float]], float]:
    total = found.sum
    bounds = [*map(str, found.bounds), "+Inf"]
    return list(zip(bounds, accumulate(list(found.counts)), strict=True)), total


class _Once(Collector):
    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Family]:
        return self._samples.families()


def in_text(samples: Samples) -> str:
    """Return the samples as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(samples))
    return generate_latest(registry).decode()


def joined(texts: Iterable[str]) -> str:
    """Return several of our texts as one: each metric stands once, with the samples of all."""
    heads: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.split("\n"):
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                heads.setdefault(name, line)
            elif line.startswith("# TYPE "):
                heads[name] = f"{heads[name].partition(chr(10))[0]}\n{line}"
            elif name and line:
                found.setdefault(name, []).append(line)
    order = [PREFIX + metric.name for metric in TABLE]
    names = sorted(found, key=lambda one: order.index(one) if one in order else len(order))
    return "".join(f"{heads[name]}\n" + "".join(f"{line}\n" for line in found[name]) for name in names)
