"""The metrics that Prometheus scrapes: few series, none per path or per NIC. Units are base units, counters end in ``_total``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot_gateway.state.fleet import NodeView
    from foliot_gateway.state.store import Store


def render(store: Store, nodes: Iterable[NodeView]) -> bytes:
    """The metrics in Prometheus' text format, of what is known and of all nodes in it."""
    return generate_latest(_Collector(store, nodes))


class _Collector(Collector):
    def __init__(self, store: Store, nodes: Iterable[NodeView]) -> None:
        self._store = store
        self._nodes = nodes

    def collect(self) -> Iterable[Metric]:
        store = self._store
        yield from _records(store)
        yield from _fleet(store, self._nodes)
        yield from _traces(store)
        yield _labelled(
            CounterMetricFamily,
            "foliot_rejected_messages",
            "Messages that a service could not read",
            "service",
            store.rejected,
        )
        yield _labelled(
            CounterMetricFamily,
            "foliot_unstored_attempts",
            "Attempts to store an event, command or outcome that failed",
            "service",
            store.unstored,
        )
        yield GaugeMetricFamily("foliot_bus_connected", "1 while the bus answers", value=store.bus_connected)


def _records(store: Store) -> Iterable[Metric]:
    records = store.records
    yield _labelled(
        CounterMetricFamily,
        "foliot_events",
        "Events seen, since the oldest that was kept at the start",
        "kind",
        records.event_counts,
    )
    yield _labelled(CounterMetricFamily, "foliot_commands", "Commands seen, likewise", "verb", records.command_counts)
    outcomes = CounterMetricFamily("foliot_outcomes", "Outcomes of commands and armed moves", labels=("verb", "status"))
    for (verb, status), count in sorted(records.outcome_counts.items()):
        outcomes.add_metric((verb, status), count)
    yield outcomes


def _fleet(store: Store, nodes: Iterable[NodeView]) -> Iterable[Metric]:
    nics = [nic for node in nodes for nic in node.nics]
    states = Counter[str](nic.state for nic in nics)
    yield _labelled(GaugeMetricFamily, "foliot_nics", "NICs by the state of their port", "state", states)
    moved = sum(nic.moved for nic in nics)
    yield GaugeMetricFamily("foliot_nics_moved", "NICs whose traffic goes another way", value=moved)
    clocks = store.fleet.clocks()
    yield _labelled(
        GaugeMetricFamily, "foliot_clocks", "Clocks by status", "status", Counter[str](clock.status for clock in clocks)
    )
    widest = GaugeMetricFamily("foliot_clock_bound_max_seconds", "The widest statistical bound, as sync last gave it")
    if clocks:
        widest.add_metric((), max(clock.bound_ns for clock in clocks) / 1e9)
    yield widest


def _traces(store: Store) -> Iterable[Metric]:
    traces = store.traces
    yield GaugeMetricFamily("foliot_traces", "Traces in the store", value=len(traces))
    yield GaugeMetricFamily("foliot_spans", "Spans in the store", value=traces.span_count)
    yield GaugeMetricFamily("foliot_trace_store_bytes", "Memory of the store, by estimate", value=traces.memory_bytes)
    yield CounterMetricFamily("foliot_traces_evicted", "Traces let go for want of room", value=traces.evicted)
    yield CounterMetricFamily("foliot_spans_dropped", "Spans over the limit of their trace", value=traces.dropped)
    yield CounterMetricFamily("foliot_spans_refused", "Spans without proper ids", value=store.spans_refused)


def _labelled(
    family: type[CounterMetricFamily | GaugeMetricFamily], name: str, text: str, label: str, counts: Mapping[str, int]
) -> Metric:
    made = family(name, text, labels=(label,))
    for value, count in sorted(counts.items()):
        made.add_metric((value,), count)
    return made
