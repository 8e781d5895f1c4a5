"""Whatever is on the bus, a core neither fails nor answers what cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import time

import hostile
import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from targets import one_of_two_shards, published

from draws import draws
from foliot.clock import BusClock
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_gateway.http import metrics
from foliot_gateway.service import Feed
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state import queries
from foliot_gateway.state.path_map import MapQuery
from foliot_gateway.state.store import Store
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas import WireError, decode, encode
from foliot_sync.core.fit.fit_messages import read
from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.settings import SyncSettings

# Derandomised: the same examples in every run. The coverage-guided targets look for new ones.
SOME = settings(
    max_examples=len(draws(20)),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
pauses = st.sampled_from([0, 10_000_000, 300_000_000, 6_000_000_000])


def on_the_wire(message):
    """The message as others read it; fails if they would refuse it."""
    return decode(encode(message), type(message))


def steps(*kinds):
    """Messages of these kinds in any order, each after a pause."""
    return st.lists(st.tuples(st.one_of(*kinds).map(on_the_wire), pauses), max_size=25)


@SOME
@given(
    steps(hostile.delay_batches, hostile.ports, hostile.clock_states, hostile.node_records, hostile.jobs),
    st.lists(hostile.events.map(on_the_wire), max_size=4),
)
def test_a_detector_survives_any_observations(seen, before):
    """Its events can be read by everybody."""
    detector = Pipeline(DetectorSettings())
    for record in hostile.INVENTORY:
        detector.observe(record)
    for event in before:
        detector.resume(event)
    for message, pause_ns in seen:
        for event in [*detector.observe(message, pause_ns), *detector.tick(pause_ns)]:
            on_the_wire(event)
    assert detector.counts["detectors_failed"] == 0, detector.failures()


@SOME
@given(
    steps(hostile.collective_batches, hostile.worker_batches, hostile.jobs, hostile.gpu_errors, hostile.ports),
    st.lists(hostile.events.map(on_the_wire), max_size=4),
)
def test_a_detector_survives_whatever_is_said_of_ranks(seen, before):
    """And of workers and GPUs, by nodes that contradict each other and themselves; its events can be read by everybody."""
    detector = Pipeline(DetectorSettings(hang_s=0.1, straggler_windows=1))
    for record in hostile.INVENTORY:
        detector.observe(record)
    for event in before:
        detector.resume(event)
    for message, pause_ns in seen:
        for event in [*detector.observe(message, pause_ns), *detector.tick(pause_ns)]:
            on_the_wire(event)
    assert detector.counts["detectors_failed"] == 0, detector.failures()


@SOME
@given(
    steps(
        hostile.delay_batches,
        hostile.flow_batches,
        hostile.hop_batches,
        hostile.ports,
        hostile.events,
        hostile.contentions,
        hostile.outcomes,
        hostile.node_paths,
        hostile.node_homes,
        hostile.node_records,
    )
)
def test_a_remediator_survives_any_messages(seen):
    """Its commands, refusals and paths can be read by everybody."""
    core, now_ns = Remediator(RemediatorSettings(improve="act")), hostile.NOW_NS
    for record in hostile.INVENTORY:
        core.observe(record, now_ns)
    for number, (message, pause_ns) in enumerate(seen):
        now_ns += pause_ns
        core.hold(7 if number % 5 else 0, now_ns)
        for action in [*core.observe(message, now_ns), *core.tick(now_ns)]:
            for said in published(action):
                on_the_wire(said)
    assert not core.failures.news(now_ns)


@SOME
@given(
    steps(
        hostile.move_orders,
        hostile.move_answers,
        hostile.delay_batches,
        hostile.flow_batches,
        hostile.hop_batches,
        hostile.contentions,
        hostile.outcomes,
        hostile.node_paths,
        hostile.node_homes,
        hostile.node_records,
    )
)
def test_a_coordinator_survives_any_messages(seen):
    """So does the shard that it is; its orders and answers can be read as well."""
    core, now_ns = one_of_two_shards(), hostile.NOW_NS
    for number, (message, pause_ns) in enumerate(seen):
        now_ns += pause_ns
        core.hold(7 if number % 5 else 0, now_ns)
        core.coordinate({"rail0": 9} if number % 7 else {}, {"rail0"})
        for action in [*core.observe(message, now_ns), *core.tick(now_ns)]:
            for said in published(action):
                on_the_wire(said)
    assert not core.failures.news(now_ns)


@SOME
@given(
    st.sampled_from(["free", "utc", "tai"]),
    st.lists(hostile.clock_states.map(on_the_wire), max_size=3),
    st.lists(st.lists(hostile.stamp_batches.map(on_the_wire), max_size=6), max_size=5),
)
def test_a_synchroniser_survives_any_stamps(timescale, before, windows):
    """Every state that it publishes can be read: no NaN, no time out of bounds.

    So it can after whatever an earlier run has said.
    """
    core, now_ns = Synchroniser(SyncSettings(timescale=timescale)), 0
    core.resume(before)
    for batches in windows:
        now_ns += 2 * hostile.SECOND_NS
        for batch in batches:
            core.add(batch, now_ns)
        for state in core.solve(now_ns):
            on_the_wire(state)


@SOME
@given(
    st.lists(hostile.clock_states.map(on_the_wire), max_size=3),
    st.lists(st.lists(hostile.fit_batches.map(on_the_wire), max_size=3), max_size=5),
)
def test_a_leader_survives_any_fits(before, windows):
    """What shards may say, after whatever an earlier leader has said: every state that comes of it can be read."""
    core, now_ns = Synchroniser(SyncSettings()), 0
    core.resume(before)
    for batches in windows:
        now_ns += 2 * hostile.SECOND_NS
        for state in core.weigh([read(batch, 5) for batch in batches], now_ns):
            on_the_wire(state)


FEEDS = {
    "event": hostile.events, "command": hostile.commands, "outcome": hostile.outcomes, "port": hostile.ports,
    "delays": hostile.delay_batches, "flows": hostile.flow_batches, "hops": hostile.hop_batches,
    "clock_state": hostile.clock_states, "rejected": hostile.rejections, "workers": hostile.worker_batches,
}  # fmt: skip


@SOME
@given(
    st.lists(st.one_of(*(st.tuples(st.just(name), feed) for name, feed in FEEDS.items())), max_size=25),
    st.lists(hostile.jobs.map(on_the_wire), max_size=3),
    st.lists(hostile.drains.map(on_the_wire), max_size=3),
)
def test_a_gateway_shows_whatever_was_said(seen, jobs, drains):
    """All that it shows is JSON and metrics, whatever it was told."""
    present = Store(GatewaySettings(), time.time_ns)
    feed = Feed(present, BusClock("gateway"))

    async def take():
        for record in hostile.INVENTORY:
            await feed._node(record.name, record)
        for job in jobs:
            await feed._job(job.name, job)
        for drain in drains:
            await feed._drain(drain.node, drain)
        for name, message in seen:
            with contextlib.suppress(WireError):  # said on `rejected`
                await getattr(feed, f"_{name}")(on_the_wire(message), "")

    asyncio.run(take())
    known = tuple(queries.jobs(present))
    shown = (
        known, [queries.why(present, job.job) for job in known], tuple(present.fleet.nodes()), tuple(present.fleet.paths()), present.fleet.clocks(),
        tuple(present.fleet.map(MapQuery())),
        present.records.events(limit=10), present.records.commands(limit=10),
    )  # fmt: skip
    # Strictly: NaN and infinities are none, though a name may have their letters in it.
    msgspec.json.decode(msgspec.json.encode(shown))
    metrics.render(present, present.fleet.nodes())
