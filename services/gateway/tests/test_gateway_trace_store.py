"""The trace store: what comes in late, twice, too much or too long ago."""

import random

import pytest

from foliot_gateway.state import trace_store
from foliot_gateway.state.trace_store import Span, TraceStore, summarise, weigh

TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(number, *, parent=0, trace=TRACE, service="detector", start_ns=None, end_ns=None, **more):
    """A span, its id and start made from a number."""
    start_ns = 1_000 + number if start_ns is None else start_ns
    return Span(
        trace_id=trace,
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        name=more.pop("name", f"work {number}"),
        service=service,
        start_ns=start_ns,
        end_ns=start_ns + 10 if end_ns is None else end_ns,
        **more,
    )


@pytest.fixture
def kept():
    """An empty store."""
    return TraceStore()


def test_spans_of_one_trace_come_out_by_their_start(kept):
    """Arrival order does not matter: the child that arrives before its parent stands behind it."""
    kept.add([span(3, parent=1)], at_ns=1)
    kept.add([span(1)], at_ns=2)
    kept.add([span(2, parent=1)], at_ns=3)

    trace = kept.get(TRACE, now_ns=10)
    assert [f"{number:016x}" for number in (1, 2, 3)] == [each.span_id for each in trace.spans]
    assert trace.summary.name == "work 1"


def test_quiet_time_counts_from_the_last_new_span(kept):
    """A repeated span is no news, so it does not make a settled trace look busy."""
    kept.add([span(1)], at_ns=100)
    kept.add([span(1)], at_ns=900)

    assert kept.get(TRACE, now_ns=1_000).quiet_ns == 900


def test_a_span_sent_twice_is_kept_once(kept):
    """An exporter that missed our answer sends its batch again; nothing is counted double."""
    assert kept.add([span(1), span(2, parent=1)], at_ns=1) == 0
    weight = kept.memory_bytes
    assert kept.add([span(1), span(2, parent=1)], at_ns=2) == 0

    assert weight == kept.memory_bytes
    assert kept.span_count == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_accounts_of_a_root_the_first_witness_has_it(kept, order):
    """Probe and agent derive the same root span from a fault.

    The one that saw it first is kept in either order of arrival.
    """
    accounts = [span(1, service="probe", start_ns=500), span(1, service="agent", start_ns=700)]
    for index in order:
        kept.add([accounts[index]], at_ns=1)

    assert [accounts[0]] == list(kept.get(TRACE, now_ns=2).spans)
    assert weigh(accounts[0]) == kept.memory_bytes


def test_the_trace_without_news_for_longest_goes_first(kept, monkeypatch):
    """Over the limit, a trace that still grows outlives one that was begun later and fell silent."""
    monkeypatch.setattr(trace_store, "MOST_TRACES", 2)
    kept.add([span(1, trace="a" * 32)], at_ns=1)
    kept.add([span(1, trace="b" * 32)], at_ns=2)
    kept.add([span(2, trace="a" * 32)], at_ns=3)
    kept.add([span(1, trace="c" * 32)], at_ns=4)

    assert kept.get("b" * 32, now_ns=5) is None
    assert {"a" * 32, "c" * 32} == {summary.trace_id for summary in kept.recent(10)}
    assert (kept.evicted, kept.span_count) == (1, 3)


def test_memory_stays_within_its_bound_whatever_comes(kept, monkeypatch):
    """A thousand traces of random size never take more than the limit, and the accounts add up."""
    dice = random.Random(3)
    monkeypatch.setattr(trace_store, "MOST_BYTES", 200_000)
    for number in range(1_000):
        text = "x" * dice.randrange(5_000)
        kept.add([span(1, trace=f"{number:032x}", attributes={"text": text})], at_ns=number)
        assert kept.memory_bytes <= 200_000

    present = [kept.get(summary.trace_id, now_ns=0) for summary in kept.recent(10_000)]
    assert kept.memory_bytes == sum(weigh(each) for trace in present for each in trace.spans)
    assert kept.evicted == 1_000 - len(present) > 0


def test_one_trace_cannot_push_out_the_others(kept, monkeypatch):
    """Spans over the limit of a trace are dropped and counted; its first ones and the other traces stay."""
    monkeypatch.setattr(trace_store, "MOST_SPANS", 3)
    kept.add([span(1, trace="b" * 32)], at_ns=1)
    dropped = kept.add([span(number) for number in range(1, 8)], at_ns=2)

    assert dropped == kept.dropped == 4
    assert len(kept.get(TRACE, now_ns=3).spans) == 3
    assert kept.get("b" * 32, now_ns=3) is not None


def test_weight_follows_what_a_span_carries():
    """Nested attributes count, so that a sender cannot hide memory in them."""
    plain = weigh(span(1))
    nested = weigh(span(1, attributes={"outer": {"inner": ["y" * 1_000]}}))

    assert nested > plain + 1_000


def test_recent_traces_are_newest_first(kept):
    """The list begins with the trace that began last."""
    for number in (2, 3, 1):
        kept.add([span(1, trace=f"{number:032x}", start_ns=number * 1_000)], at_ns=1)

    assert [int(summary.trace_id, 16) for summary in kept.recent(2)] == [3, 2]


def test_a_summary_names_the_root_and_covers_all_spans():
    """Name of the root, services in order of appearance, duration up to the latest end."""
    spans = [
        span(5, parent=1, service="agent", start_ns=90, end_ns=95),
        span(1, name="lose carrier", service="probe", start_ns=100, end_ns=110),
        span(2, parent=1, service="agent", start_ns=120, end_ns=300, status="error"),
    ]

    summary = summarise(spans)

    assert summary.name == "lose carrier"
    assert summary.services == ("agent", "probe")
    assert (summary.start_ns, summary.duration_ns, summary.span_count, summary.errors) == (90, 210, 3, 1)


def test_an_unknown_trace_is_none(kept):
    """Nothing is invented for an id that never came."""
    assert kept.get(TRACE, now_ns=0) is None
