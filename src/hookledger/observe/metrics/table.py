"""The table of metrics: `/metrics`, docs/reference/metrics.md and the tests are made from it.

Labels come from the configuration, from declarations of the application or from closed sets, whatever strangers send:
a request that belongs to no source has `source=""`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct

PREFIX = "hookledger_"
PROCESS = "process"
"""The label that every metric of a process has."""
PROCESSES = ("receive", "answering", "work", "api", "app")
"""Its values. `answering`: the process that runs handlers which answer, which `receive` starts; `app`: your own."""

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
DELAYS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

Kind = Literal["counter", "gauge", "histogram"]
Owner = Literal["every process", "receive", "work", "database"]


class Metric(Struct, frozen=True):
    """One metric. Its name is without the prefix."""

    name: str
    kind: Kind
    of: Owner
    """Which process counts it; `database`: what `api`, or `receive` with the operator's listener, reads there."""
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    unit: str = ""


TABLE: tuple[Metric, ...] = (
    Metric("up", "gauge", "every process", "Whether the process answers: 0 for a silent one."),
    Metric("requests_total", "counter", "receive", "Requests that were answered, handshakes included.", ("source",)),
    Metric(
        "deliveries_total",
        "counter",
        "receive",
        "Recorded deliveries: `accepted` is a new event, `duplicate` a known one.",
        ("source", "outcome"),
    ),
    Metric(
        "rejections_total",
        "counter",
        "receive",
        "Requests that were answered with 4xx, by the code of the reason, such as `signature_mismatch`.",
        ("source", "reason"),
    ),
    Metric(
        "unavailable_total",
        "counter",
        "receive",
        "Requests that were answered with 503: nothing was recorded, or that is unknown.",
        ("cause",),
    ),
    Metric(
        "ack_seconds",
        "histogram",
        "receive",
        "From a complete request to the commit that holds its events.",
        ("source",),
        SHORT,
        "s",
    ),
    Metric(
        "answers_total",
        "counter",
        "receive",
        "Deliveries whose handlers answer: `run` got the handler's answer, `stored` the same again, `late` what is "
        "sent past the deadline, `refused` 4xx or 5xx, `rule` the answer to failed and other known events.",
        ("source", "result"),
    ),
    Metric(
        "answer_lookups_total",
        "counter",
        "receive",
        "Duplicates of them: a `hit` got the handler's answer, a `miss` something else.",
        ("source", "result"),
    ),
    Metric("commit_seconds", "histogram", "receive", "The time of one commit.", (), SHORT, "s"),
    Metric("commit_deliveries", "histogram", "receive", "Deliveries in one commit.", (), SIZES),
    Metric("intake_queue", "gauge", "receive", "Deliveries that wait for a commit."),
    Metric(
        "attempts_total",
        "counter",
        "work",
        "Attempts whose outcome is recorded. A crashed attempt is counted as a reclaimed lease.",
        ("source", "handler", "outcome"),
    ),
    Metric(
        "attempt_seconds",
        "histogram",
        "work",
        "From the start of an attempt to its recorded outcome.",
        ("handler",),
        CALLS,
        "s",
    ),
    Metric(
        "settle_delay_seconds",
        "histogram",
        "work",
        "From the arrival of an event to the end of its first run: processed, skipped, failed or in review.",
        ("source",),
        DELAYS,
        "s",
    ),
    Metric("effect_calls_total", "counter", "work", "Calls that effects made.", ("effect", "outcome")),
    Metric("effect_seconds", "histogram", "work", "The time of one call.", ("effect",), CALLS, "s"),
    Metric("claims_lost_total", "counter", "work", "Claims that this worker could not renew in time."),
    Metric("leases_reclaimed_total", "counter", "work", "Events of dead workers that this worker reclaimed."),
    Metric(
        "late_outcomes_refused_total",
        "counter",
        "work",
        "Outcomes that were discarded, because another worker had the event by then.",
    ),
    Metric("stale_total", "counter", "work", "Answers of guards that an event was stale.", ("source",)),
    Metric(
        "effect_conflicts_total",
        "counter",
        "work",
        "Effects that were asked for again with other arguments.",
        ("effect",),
    ),
    Metric("rollbacks_total", "counter", "work", "Transactions of handlers that were rolled back.", ("cause",)),
    Metric("handlers_running", "gauge", "work", "Handlers that run now."),
    Metric("handler_slots", "gauge", "work", "Handlers that can run concurrently."),
    Metric(
        "heartbeat_timestamp_seconds",
        "gauge",
        "work",
        "When the worker last renewed its leases, in seconds since 1970.",
        unit="s",
    ),
    Metric(
        "database_up",
        "gauge",
        "database",
        "Whether the database answered; the other metrics of the database are absent if not.",
    ),
    Metric(
        "queue_events",
        "gauge",
        "database",
        "Events that are not settled yet. Counted up to 100,000 for each source.",
        ("source", "state"),
    ),
    Metric(
        "queue_lag_seconds",
        "gauge",
        "database",
        "For how long the event that is due for longest has been due; 0 if none is.",
        ("source",),
        unit="s",
    ),
    Metric(
        "backlog_events",
        "gauge",
        "database",
        "Events that wait for an operator: `failed` is the dead letter. Counted up to 100,000 for each state.",
        ("source", "state"),
    ),
    Metric("outbox_effects", "gauge", "database", "Effects that are planned, failed or unknown.", ("state",)),
    Metric(
        "outbox_lag_seconds",
        "gauge",
        "database",
        "For how long the planned effect that is due for longest has been due; 0 if none is.",
        unit="s",
    ),
    Metric(
        "circuit_open",
        "gauge",
        "database",
        "1 while calls to the downstream are stopped: its circuit is open or half-open.",
        ("downstream",),
    ),
    Metric("workers_alive", "gauge", "database", "Workers with a heartbeat within the lease."),
    Metric(
        "clock_skew_seconds",
        "gauge",
        "database",
        "By how much the database's clock is ahead of this host's.",
        unit="s",
    ),
    Metric(
        "secret_expiry_timestamp_seconds",
        "gauge",
        "database",
        "When the last secret of the source expires, in seconds since 1970; absent if one never does.",
        ("source",),
        unit="s",
    ),
    Metric(
        "event_alerts",
        "gauge",
        "database",
        "Events that are redelivered too often while they fail; counted up to 1,000.",
        ("source",),
    ),
    Metric(
        "consistency_violations",
        "gauge",
        "database",
        "Rows that break a rule of consistency: what the last full check found, or one that began later.",
    ),
    Metric(
        "consistency_checked_timestamp_seconds",
        "gauge",
        "database",
        "When the last full consistency check ended, in seconds since 1970; absent if there was none.",
        unit="s",
    ),
    Metric(
        "alert_messages",
        "gauge",
        "database",
        "Alert messages to people that are kept, counted up to 10,000 for each state; `failed` were given up.",
        ("state",),
    ),
)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in TABLE}


class Answer(NamedTuple):
    """A figure that people ask for, and the expression of it."""

    name: str
    promql: str


ANSWERS: tuple[Answer, ...] = (
    Answer("Received", 'sum by (source) (rate(hookledger_deliveries_total{outcome="accepted"}[5m]))'),
    Answer(
        "Duplicates (duplicate count)",
        'sum by (source) (increase(hookledger_deliveries_total{outcome="duplicate"}[1h]))',
    ),
    Answer(
        "Signature failures",
        "sum by (source) (rate(hookledger_rejections_total{"
        'reason=~"signature_.*|secret_expired|credential_.*|timestamp_.*|id_.*|body_malformed|body_digest_.*|token_.*|'
        'algorithm_.*|certificate_.*|key_unknown|claim_mismatch|form_malformed|query_malformed"}[5m]))',
    ),
    Answer(
        "Accept latency, p95",
        "histogram_quantile(0.95, sum by (source, le) (rate(hookledger_ack_seconds_bucket[5m])))",
    ),
    Answer("Processing lag", "max by (source) (hookledger_queue_lag_seconds)"),
    Answer(
        "Processing latency, p95",
        "histogram_quantile(0.95, sum by (source, le) (rate(hookledger_settle_delay_seconds_bucket[5m])))",
    ),
    Answer("Retrying", 'max by (source) (hookledger_queue_events{state="retrying"})'),
    Answer("Failed (dead-letter backlog)", 'max by (source) (hookledger_backlog_events{state="failed"})'),
    Answer("Stale", "sum by (source) (rate(hookledger_stale_total[5m]))"),
    Answer("Effect conflicts", "sum by (effect) (increase(hookledger_effect_conflicts_total[1h]))"),
    Answer(
        "Rollback rate",
        'sum(rate(hookledger_rollbacks_total{cause!="decision"}[5m])) / sum(rate(hookledger_attempts_total[5m]))',
    ),
    Answer(
        "Answer cache hit rate",
        'sum by (source) (rate(hookledger_answer_lookups_total{result="hit"}[5m])) / '
        "sum by (source) (rate(hookledger_answer_lookups_total[5m]))",
    ),
)
"""The figures that operators of webhooks ask for, under our names."""
