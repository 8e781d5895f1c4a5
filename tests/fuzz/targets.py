"""What is fuzzed: per family of bytes from outside, what reads them, down to the core that they reach.

A target takes any bytes. It ends quietly whether they are good or refused as documented; everything else that it raises
is a finding.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import tempfile
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import hostile
import msgspec
import numpy as np
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from foliot import native, settings
from foliot.analysis import flight_recorder, hang
from foliot.node.shard import Shard
from foliot.settings import BusSettings, NodeSettings, SettingsError, TelemetrySettings
from foliot_agent.control.restart_cache import RestartCache
from foliot_agent.core import kernel_lines, rank_report, worker_report
from foliot_agent.core.job_ranks import JobRanks
from foliot_agent.core.job_workers import JobWorkers
from foliot_agent.core.peer_protocol import ReplayGuard, Seal
from foliot_agent.settings import AgentSettings
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_gateway.http import otlp_decoder
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state import trace_store
from foliot_gateway.state.store import Store
from foliot_lab.scenario.reading import ScenarioError, parse_scenario
from foliot_probe.core.measure.sessions import Completed, Sessions
from foliot_probe.core.measure.silence import SilenceWatch
from foliot_probe.core.packet import IN_USE, ProbePacket, is_probe
from foliot_probe.io.udp_batch import Arrivals
from foliot_probe.packet_loop import Report, SilenceChanges
from foliot_probe.settings import ProbeSettings
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas import (
    ClockState,
    CollectiveBatch,
    DelayBatch,
    Event,
    FitBatch,
    FlowBatch,
    GpuError,
    HopBatch,
    Job,
    MoveAnswer,
    MoveOrder,
    Node,
    NodeHomes,
    NodePaths,
    Outcome,
    PortState,
    StampBatch,
    WireError,
    WorkerBatch,
    decode,
    encode,
)
from foliot_schemas.names import escape, parse_path, unescape
from foliot_schemas.notice import Notice
from foliot_schemas.subjects import BUCKETS, CHANNELS
from foliot_sync.core.fit import fit_messages
from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.settings import SyncSettings
from virtual_clock import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = sorted({each.message for each in (*CHANNELS, *BUCKETS)}, key=lambda kind: kind.__name__)
"""By the first byte of an input of `messages`."""
_KEY = "a key that the fleet shares"
_packet_loop = native.compiled("packet_loop")
_SEAL = Seal(_KEY)
_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
_SECTIONS = {
    "bus": BusSettings, "telemetry": TelemetrySettings, "node": NodeSettings, "probe": ProbeSettings,
    "agent": AgentSettings, "sync": SyncSettings, "detector": DetectorSettings, "remediator": RemediatorSettings,
    "gateway": GatewaySettings,
}  # fmt: skip


def messages(data: bytes) -> None:
    """Any message of the contract; those that decode go to every core that reads them, whose results can be read."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    try:
        message = decode(data[1:], kind)
    except WireError:
        return
    assert decode(encode(message), kind) == message
    for said in _answers(message):
        decode(encode(said), type(said))


def published(action: Any) -> list[msgspec.Struct]:
    """What of a remediator's action goes onto the bus."""
    if isinstance(action, NodeHomes | NodePaths | MoveOrder | MoveAnswer):
        return [action]
    return [*action.commands, *action.refusals]


def one_of_two_shards() -> Remediator:
    """The second of two remediators, which coordinates a rail."""
    shards = [Shard("", "node2"), Shard("node2")]
    made = Remediator(RemediatorSettings(improve="act"), shards[1], shards)
    for record in hostile.INVENTORY:
        made.observe(record, hostile.NOW_NS)
    made.hold(7, hostile.NOW_NS)
    made.coordinate({"rail0": 9}, {"rail0"})
    return made


def _answers(message: msgspec.Struct) -> list[msgspec.Struct]:
    """What the cores say to a message in a small fleet."""
    said: list[msgspec.Struct] = []
    if isinstance(
        message,
        DelayBatch | PortState | FlowBatch | HopBatch | CollectiveBatch | WorkerBatch | GpuError | ClockState | Node
        | NodePaths | Job,
    ):  # fmt: skip
        detector = Pipeline(DetectorSettings())
        for record in hostile.INVENTORY:
            detector.observe(record)
        said += detector.observe(message) + detector.observe(message, 300_000_000) + detector.tick(6_000_000_000)
    said += _of_remediators(message)
    if isinstance(message, StampBatch):
        synchroniser = Synchroniser(SyncSettings())
        synchroniser.add(message, 1)
        said += synchroniser.solve(2)
    if isinstance(message, FitBatch):
        said += Synchroniser(SyncSettings()).weigh([fit_messages.read(message, 5)], 2)
    if isinstance(message, Event):
        Store(GatewaySettings(), time.time_ns).event(message)
    return said


def _of_remediators(message: msgspec.Struct) -> list[msgspec.Struct]:
    """What one says that serves the whole fleet, and to orders and answers one of two."""
    said: list[msgspec.Struct] = []
    if isinstance(
        message, DelayBatch | FlowBatch | HopBatch | PortState | Event | Outcome | Node | NodeHomes | NodePaths
    ):
        remediator = Remediator(RemediatorSettings(improve="act"))
        for record in hostile.INVENTORY:
            remediator.observe(record, hostile.NOW_NS)
        if not isinstance(message, NodePaths):  # which who holds the lease has written itself
            remediator.hold(7, hostile.NOW_NS)
        actions = remediator.observe(message, hostile.NOW_NS) + remediator.tick(hostile.NOW_NS + 10_000_000_000)
        remediator.hold(8, hostile.NOW_NS + 11_000_000_000)
        actions += remediator.tick(hostile.NOW_NS + 12_000_000_000)
        for action in actions:
            said += published(action)
    if isinstance(message, MoveOrder | MoveAnswer):
        shard = one_of_two_shards()
        for action in shard.observe(message, hostile.NOW_NS) + shard.tick(hostile.NOW_NS + 10_000_000_000):
            said += published(action)
    return said


def names(data: bytes) -> None:
    """Names of paths, and tokens of subjects."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        assert str(parse_path(text)) == text
    with contextlib.suppress(ValueError):
        assert escape(unescape(text)) == text


def datagrams(data: bytes) -> None:
    """What comes to an agent's socket, as it is, and again under a seal that fits."""
    guard = ReplayGuard()
    for datagram in (data, _SEAL._digest(data) + data):
        with contextlib.suppress(ValueError):
            message = _SEAL.open(datagram)
            assert _SEAL.open(_SEAL.close(message)) == message
            if isinstance(message, Notice):
                guard.judge(message, VirtualClock().now_ns(), synchronised=True)


def probes(data: bytes) -> None:
    """Packets that come to a probe's socket, several at once, of two peers; the compiled loop takes them, too."""
    _compiled_probes(data)
    size = ProbePacket.itemsize
    heard = np.frombuffer(data.ljust(-(-max(len(data), 1) // size) * size, b"\0"), ProbePacket)[:8]
    lengths = np.full(len(heard), size, np.uint32)
    lengths[-1] = len(data) - size * (len(heard) - 1) if len(data) <= 8 * size else size
    sane = is_probe(heard, lengths)
    row = np.arange(len(heard))[sane] % 2
    sessions, watch = Sessions(4), SilenceWatch(4)
    for each in (0, 1):
        sessions.open(each, 5 + each)
    for start_ns in (1_000_000_000, 2_000_000_000):
        sessions.announce(np.full(4, 40_000), np.ones(4, bool), np.ones(4, int), np.full(4, 40))
        sessions.set_sizes(np.full(4, 1_450))
        sessions.compose(np.array([0, 1]), np.zeros(2, bool), np.array([False, True]))
        sessions.hear(row, heard[sane], np.arange(len(row)) + start_ns, heard[sane]["sequence"] % 2 == 0)
        watch.hear(row, np.full(len(row), start_ns), heard[sane]["interval_us"], heard[sane]["use"] & IN_USE != 0)
        watch.judge(start_ns)
        sent, received = sessions.count()
        # Numbers are compared and not columns: see run.py of what the fuzzer keeps of each comparison.
        assert int(received.max()) <= len(row)
        _show(taken=len(row), counted=int(received.sum()), proven=int(min(sent.sum(), 9)))
        assert not sent[2:].any()
        full_sent, full_received = sessions.count_full()
        assert (full_sent >= full_received).all()
        assert int(full_received.max()) <= len(row)
        for ring in (sessions.outgoing, sessions.incoming):
            done = ring.take_completed()
            _show(completed=len(done.row))
            assert int(np.abs(done.transmit_ns).max(initial=0)) < 1 << 62
            assert int(np.abs(done.receive_ns).max(initial=0)) < 1 << 62


def _compiled_probes(data: bytes) -> None:
    if _packet_loop is None:
        return
    size = ProbePacket.itemsize
    heard = np.frombuffer(data.ljust(-(-max(len(data), 1) // size) * size, b"\0"), ProbePacket)
    shape = {"tick_ns": 40_000_000, "full_every": 4, "now_ns": 0, "seed": 1, "error": None}
    loop = _packet_loop.PacketLoop(1, 4, types=(SilenceChanges, Report, Completed), **shape)
    for row in (0, 1):
        loop.begin(row, 0, (row + 1, 7_946), session=5 + row, first=1, every=1, tick=0)
    loop.set_sizes(np.full(4, 1_450))
    lengths = np.full(len(heard), size, np.uint32)
    lengths[-1] = len(data) - size * (len(heard) - 1)
    address = (1 + np.arange(len(heard)) % 3).astype(np.uint32)
    came = Arrivals(np.zeros(len(heard), np.intp), address, heard, lengths, None)
    for start_ns in (1_000_000_000, 2_000_000_000):
        loop.take_departures(came.place, heard, np.full(len(heard), start_ns))
        loop.take_arrivals(came, np.arange(len(heard)) + start_ns, start_ns, start_ns)
        loop.judge(start_ns)
        loop.compose(start_ns // 40_000_000)
        told = loop.take_report()
        assert int(told.received.max()) <= len(heard)
        assert not told.proven[2:].any()
        assert (told.full_proven >= told.full_received).all()
        for done in (told.outgoing, told.incoming):
            assert int(np.abs(done.transmit_ns).max(initial=0)) < 1 << 62
            assert int(np.abs(done.receive_ns).max(initial=0)) < 1 << 62


def _show(*, taken: int = 0, counted: int = 0, proven: int = 0, completed: int = 0) -> int:
    """Lets the fuzzer see how far packets got, which columns without branches do not show.

    How often each line runs is what it sees.
    """
    shown = 0
    for _ in range(taken):
        shown += 1
    for _ in range(counted):
        shown += 2
    for _ in range(proven):
        shown += 3
    for _ in range(completed):
        shown += 4
    return shown


@mock.patch.multiple(trace_store, MOST_TRACES=10, MOST_BYTES=1 << 20, MOST_SPANS=100)
def spans(data: bytes) -> None:
    """Bodies of OTLP over HTTP: protobuf and JSON, plain and compressed."""
    store = trace_store.TraceStore()
    for coding in ("", "gzip", "deflate"):
        for read in (otlp_decoder.from_protobuf, otlp_decoder.from_json):
            try:
                received = read(otlp_decoder.inflate(data, coding, 1 << 16))
            except (otlp_decoder.OtlpError, RequestEntityTooLarge):
                continue
            store.add(received.spans, 1)
    for summary in store.recent(10):
        msgspec.json.encode(store.get(summary.trace_id, 2))
    assert store.memory_bytes <= 1 << 20


def configurations(data: bytes) -> None:
    """Settings and scenarios, in TOML."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ScenarioError):
        parse_scenario(text)
    with contextlib.suppress(ValueError, RecursionError):
        document = tomllib.loads(text)
        for section, kind in _SECTIONS.items():
            try:
                settings.read(kind, section, document, {}, source="fuzz")
            except SettingsError as error:
                assert re.match(r"[\w.\[\]-]*", str(error))  # noqa: PT017 - that it is a sentence about a key
            except ValueError as error:
                raise AssertionError(f"not a SettingsError: {error!r}") from error


def memories(data: bytes) -> None:
    """What an agent's memory of an earlier run may have become."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as folder:
        Path(folder, "agent-node0.json").write_bytes(data)
        for peer in RestartCache(folder, "node0", "boot").recall().peers:
            peer.check()


def ranks(data: bytes) -> None:
    """What processes of training jobs write to the agent's socket: refused, or told so that others can read it."""
    heard, workers = JobRanks("node0"), JobWorkers("node0")
    for moment, packet in enumerate(data.split(b"\n"), start=1):
        with contextlib.suppress(ValueError):
            if worker_report.is_of_worker(packet):
                workers.take(worker_report.read(packet), hostile.NOW_NS, moment * 1_000_000_000)
            else:
                heard.take(rank_report.read(packet), hostile.NOW_NS, moment * 1_000_000_000)
        for batch in heard.batches(moment * 1_000_000_000, 100):
            assert decode(encode(batch), CollectiveBatch) == batch
        for told in workers.batches(moment * 1_000_000_000, 100):
            assert decode(encode(told), WorkerBatch) == told


def kernel_logs(data: bytes) -> None:
    """What is written to the kernel's log: no error, or one that others can read."""
    lines, bound = kernel_lines.Lines(), kernel_lines.Bound()
    for first in range(0, len(data), 64):
        for line in lines.take(data[first : first + 64]):
            error = kernel_lines.read(line)
            if error is not None and bound.passes(error, hostile.NOW_NS):
                told = GpuError(node="node0", at_ns=hostile.NOW_NS, bound_ns=100, **error._asdict())
                assert decode(encode(told), GpuError) == told


def dumps(data: bytes) -> None:
    """A dump of the Flight Recorder beside a sound one: it is judged, or it is broken and has a reason."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as folder:
        sound, other = Path(folder, "trace_0"), Path(folder, "trace_1")
        sound.write_bytes(b'{"entries":[{"profiling_name":"gloo:all_reduce","process_group":["0","all"]}]}')
        other.write_bytes(data)
        found = flight_recorder.read([sound, other])
    assert {name for name, reason in found.broken if reason} == {"trace_1"} or len(found.records) == 2
    assert found.expected <= 10_000_001
    hang.judge(found.records, found.expected)


def states(data: bytes) -> None:
    """What another rank sends of its state, but for the tensors: it is refused, or tensors can be made for it."""
    import torch  # noqa: PLC0415 - seconds, and only where it is installed

    from foliot.torch import plain_state  # noqa: PLC0415 - likewise

    with contextlib.suppress(ValueError):
        slots = plain_state.slots(data)
        tensors = [torch.empty(slot.shape, dtype=slot.type, device="meta") for slot in slots]
        assert isinstance(plain_state.put_together(data, tensors), dict)


FAMILIES: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (messages, names, datagrams, probes, spans, configurations, memories, dumps, ranks, kernel_logs, states)
    if each is not states or importlib.util.find_spec("torch") is not None
}
