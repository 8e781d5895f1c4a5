"""The metrics that Prometheus scrapes: few series, none per path or per NIC.

Units are base units, counters end in ``_total``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from foliot_gateway.state.fleet import NicView, NodeView
    from foliot_gateway.state.store import Store


def render(store: Store, nodes: Iterable[NodeView]) -> bytes:
    """The metrics in Prometheus' text format, of what is known and of all nodes in it."""
    return generate_latest(_Scrape(_metrics(store, [nic for node in nodes for nic in node.nics])))


class _Scrape(Collector):
    def __init__(self, metrics: Iterator[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics


def _metrics(store: Store, nics: list[NicView]) -> Iterator[Metric]:
    records, traces, clocks = store.records, store.traces, store.fleet.clocks()
    yield _labelled(
        CounterMetricFamily(
            "foliot_events", "Events seen, since the oldest that was kept at the start", labels=("kind",)
        ),
        records.event_counts,
    )
    yield _labelled(
        CounterMetricFamily("foliot_commands", "Commands seen, likewise", labels=("verb",)), records.command_counts
    )
    yield _labelled(
        CounterMetricFamily("foliot_outcomes", "Outcomes of commands and armed moves", labels=("verb", "status")),
        records.outcome_counts,
    )
    yield _labelled(
        GaugeMetricFamily("foliot_nics", "NICs by the state of their port", labels=("state",)),
        Counter(nic.state for nic in nics),
    )
    yield CounterMetricFamily(
        "foliot_jobs_refused", "Registrations of jobs that were refused, for NICs of others", value=store.jobs.refused
    )
    moved = sum(nic.moved for nic in nics)
    yield GaugeMetricFamily("foliot_nics_moved", "NICs whose traffic goes another way", value=moved)
    yield _labelled(
        GaugeMetricFamily("foliot_clocks", "Clocks by status", labels=("status",)),
        Counter(clock.status for clock in clocks),
    )
    widest = GaugeMetricFamily("foliot_clock_bound_max_seconds", "The widest statistical bound, as sync last gave it")
    if clocks:
        widest.add_metric((), max(clock.bound_ns for clock in clocks) / 1e9)
    yield widest
    yield GaugeMetricFamily("foliot_traces", "Traces in the store", value=len(traces))
    yield GaugeMetricFamily("foliot_spans", "Spans in the store", value=traces.span_count)
    yield GaugeMetricFamily("foliot_trace_store_bytes", "Memory of the store, by estimate", value=traces.memory_bytes)
    yield CounterMetricFamily("foliot_traces_evicted", "Traces let go for want of room", value=traces.evicted)
    yield CounterMetricFamily("foliot_spans_dropped", "Spans over the limit of their trace", value=traces.dropped)
    yield CounterMetricFamily("foliot_spans_refused", "Spans without proper ids", value=store.spans_refused)
    yield _labelled(
        CounterMetricFamily("foliot_rejected_messages", "Messages that a service could not read", labels=("service",)),
        store.rejected,
    )
    failed = "Attempts to store an event, command or outcome that failed"
    yield _labelled(CounterMetricFamily("foliot_unstored_attempts", failed, labels=("service",)), store.unstored)
    late = (
        "Reports of all probes, by how late a step of the probe's loop was, or how long it took, "
        "since the report before"
    )
    yield HistogramMetricFamily(
        "foliot_probe_lateness_seconds", late, buckets=store.lateness.buckets(), sum_value=store.lateness.total_s
    )
    yield GaugeMetricFamily("foliot_bus_connected", "1 while the bus answers", value=store.bus_connected)


def _labelled(family: CounterMetricFamily | GaugeMetricFamily, counts: Mapping[Any, int]) -> Metric:
    for labels, count in sorted(counts.items()):
        family.add_metric((labels,) if isinstance(labels, str) else labels, count)
    return family
