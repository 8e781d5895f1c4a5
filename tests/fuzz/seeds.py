"""Where fuzzing starts: sound inputs of each family, from the golden files and what the repository has."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import hostile
import numpy as np
from msgspec import json, structs
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from targets import KINDS

from foliot_agent.control.restart_cache import Remembered
from foliot_agent.core.rank_orders import KeptOrder
from foliot_probe.core.packet import MAGIC, ProbePacket
from foliot_schemas import (
    DelayBatch,
    DelayCount,
    DelayRow,
    Event,
    Job,
    NodeHomes,
    NodePaths,
    Outcome,
    Placement,
    PortChange,
    PortState,
    RankChange,
    ReplaceRank,
    StampBatch,
    StampRow,
    decode,
    encode,
)
from foliot_schemas.notice import Echo, Notice, NoticeSeen
from foliot_schemas.observation import Stream
from hung_job import HungJob

if TYPE_CHECKING:
    import msgspec

_ROOT = Path(__file__).parents[2]
_GOLDEN = _ROOT / "schemas" / "tests" / "golden"
_JSON = (
    b'{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"agent"}}]},'
    b'"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"x",'
    b'"kind":1,"startTimeUnixNano":"10","endTimeUnixNano":"20","attributes":[{"key":"n","value":{"arrayValue":{"values":'
    b'[{"intValue":"3"},{"doubleValue":0.5}]}}}],"events":[{"name":"e","timeUnixNano":"11"}]}]}]}]}'
)


def of(family: str) -> list[bytes]:
    """The seeds of a family."""
    return _SEEDS[family]()


def _messages() -> list[bytes]:
    golden = [
        bytes([number]) + (_GOLDEN / f"{kind.__struct_config__.tag}.msgpack").read_bytes()
        for number, kind in enumerate(KINDS)
    ]
    at_home = [bytes([KINDS.index(type(message))]) + encode(message) for message in _of_the_inventory()]
    return [*golden, *at_home]


def _of_the_inventory() -> list[msgspec.Struct]:
    """Messages of the nodes that the targets' cores know; those of others are dropped at the door."""
    now_ns, path = hostile.NOW_NS, "node0.rail0>node1.rail0#0"
    rows = np.array(
        [
            (0, 1, 4, 2, 9_000, 9_500, 9_900, now_ns, 70, 2, 0, 1_450, 0),
            (1, 0, 4, 0, 0, 0, 0, now_ns, 74, 0, 0, 0, 2),
            (0, 2, 0, 0, 0, 0, 0, now_ns, 70, 0, 0, 0, 0), (0, 3, 0, 0, 0, 0, 0, now_ns, 75, 0, 0, 0, 0),
        ],
        DelayRow,
    )  # fmt: skip
    stamps = np.array([(0, 0, 10, 50), (0, 0, 900, 950), (0, 1, 60, 90), (0, 1, 990, 1_030)], StampRow)
    stream = Stream(path=path, initiator="node0", responder="node1", kind="kernel")
    way = Placement(peer="node1", rail="rail0", via="rail1", entropy=1)
    event = Event(id="e", kind="flap", who="node0.rail0", state="down", at_ns=now_ns, since_ns=now_ns, fault="f")
    return [
        hostile.INVENTORY[0],
        DelayBatch.of(
            rows, np.array([(0, 79, 2)], DelayCount), node="node1", at_ns=now_ns, interval_ns=100_000_000, bound_ns=400,
            paths=(path, "node1.rail0>node0.rail0#0"),
        ),
        StampBatch.of(
            stamps, node="node0", since_ns=0, until_ns=2_000, epoch_ns=now_ns, streams=(stream,), tolerated=3
        ),
        PortState(
            node="node0", nic="node0.rail0", at_ns=now_ns, carrier=False, admin_up=True, carrier_down_count=2,
            carrier_up_count=2, fault="boot", changes=(
                PortChange(
                    at_ns=now_ns - 2_000, carrier=False, admin_up=True, carrier_down_count=1, carrier_up_count=1,
                ),
                PortChange(at_ns=now_ns - 1_000, carrier=True, admin_up=True, carrier_down_count=1, carrier_up_count=2),
            ),
        ),
        event,
        structs.replace(event, kind="path", who=path, state="silent"),
        Outcome(id="o", command="c", verb="reroute", node="node0", status="done", away=("rail0",), placements=(way,)),
        NodeHomes(node="node0", lease_revision=7, placements=(way,)),
        Job(name="a", nics=("node0.rail0", "node1.rail0"), priority=5, since_ns=now_ns),
        NodePaths(node="node0", lease_revision=7, away=("rail0",), placements=(way,), backups=(way,)),
    ]  # fmt: skip


def _datagrams() -> list[bytes]:
    golden = {Notice: "notice.v1", NoticeSeen: "notice-seen.v1", Echo: "echo.v1"}
    return [encode(decode((_GOLDEN / f"{tag}.msgpack").read_bytes(), kind)) for kind, tag in golden.items()]


def _probes() -> list[bytes]:
    packets = np.zeros(4, ProbePacket)
    packets["magic"], packets["kind"], packets["interval_us"] = MAGIC, 1, 40_000
    packets["session"], packets["sequence"] = [7, 8, 7, 8], [0, 0, 1, 1]
    packets["peer_session"], packets["heard"] = [5, 6, 5, 6], [0, 0, 1, 1]
    packets["transmit_ns"], packets["receive_ns"] = 900_000_000, 950_000_000
    return [packets.tobytes(), packets[:1].tobytes()]


def _spans() -> list[bytes]:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name, span.start_time_unix_nano = b"t" * 16, b"s" * 8, "x", 10
    span.attributes.add(key="a").value.string_value = "b"
    body: bytes = request.SerializeToString()
    return [body, gzip.compress(body, mtime=0), _JSON]


def _configurations() -> list[bytes]:
    demo = (_ROOT / "lab" / "foliot_lab" / "demo.toml").read_bytes()
    node = b'[node]\nname = "n"\nindex = 0\n[[node.nics]]\nrail = "r"\nnumber = 0\ndevice = "d"\naddress = "10.0.0.1"\n'
    return [demo, node + b"[sync]\nwindow_s = 1.5\n[detector]\ncalm_s = 0.1\n[remediator]\nforget_s = 1\n"]


def _dumps() -> list[bytes]:
    dump = HungJob(1, stopped={2: 15}).dump(1)
    return [pickle.dumps(dump), json.encode(dump)]


def _ranks() -> list[bytes]:
    row = ["0", "all_reduce", 3, 3, -1, 3_000, 0, 10, 10, "float32", 40]
    report = {
        "job": "a", "rank": 0, "size": 4, "began_ns": 7, "generation": 1, "data_ns": 5, "cpu_delay_ns": 6, "dropped": 0, "over": False,
        "progress": [["0", 3, 2]], "groups": [["0", "default_pg", [[0, 1, 4]]]], "open": [row],
        "done": [[*row[:6], 3_500, *row[7:]]],
    }  # fmt: skip
    other = report | {"rank": 1, "open": None, "over": True, "groups": []}
    worker = {
        "kind": "worker", "job": "a", "process": 7, "rank": 0, "size": 4, "stage": "training", "generation": 1, "step": 3,
        "meet": "10.0.0.1:29500", "left_ns": 5, "formed_ns": 6, "state_bytes": 9, "state_from": 1,
    }  # fmt: skip
    lines = [report, other, worker, worker | {"process": 8, "rank": -1, "stage": "spare"}, worker | {"stage": "over"}]
    return [json.encode(report), json.encode(worker), b"\n".join(json.encode(each) for each in lines)]


def _states() -> list[bytes]:
    weights = {"OrderedDict": [[["w", {"tensor": ["float32", [2, 3]]}]], {"dict": [["", {"dict": [["version", 1]]}]]}]}
    values = {"dict": [[0, {"tuple": [1.5, None, True]}], ["b", {"bytes": "AAE="}], ["t", {"dtype": "bfloat16"}]]}
    others = {
        "a": {"defaultdict": ["int", [[{"frozenset": ["x"]}, {"set": [1]}]]]}, "b": {"Size": [2]}, "c": {"complex": [0.5, 1]},
        "d": {"device": "cpu"}, "e": {"Counter": [["k", 2]]}, "f": [{"bytearray": "/w=="}],
    }  # fmt: skip
    return [json.encode({"model": weights, "more": values}), json.encode(others)]


_KEPT = KeptOrder(
    order=ReplaceRank(
        job="a", generation=1, meet="10.0.0.1:29500", cause="dead",
        changes=(RankChange(rank=0, node="node0", process=7, to_node="node1", to_process=8),),
    ),
    at_ns=9,
)  # fmt: skip
_SEEDS = {
    "messages": _messages,
    "names": lambda: [b"node0.rail0>node3.rail0#2", b"node3_2erail0"],
    "datagrams": _datagrams,
    "probes": _probes,
    "spans": _spans,
    "configurations": _configurations,
    "dumps": _dumps,
    "ranks": _ranks,
    "states": _states,
    "kernel_logs": lambda: [b"6,12,34,-;eth0: up\n4,13,35,-;NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU is lost\n"],
    "memories": lambda: [json.encode(Remembered(boot="boot", peers=hostile.INVENTORY, rank_orders=(_KEPT,)))],
}
