"""The probes of a simulated fleet, in one process of `bench.fleet`: it publishes a storm as it falls due."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path

import msgspec
import nats

from foliot_lab.simulate.fault_storm import FaultStorm, StormSpec
from foliot_lab.simulate.probe_messages import ProbeMessages
from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
from foliot_schemas import DelayBatch, PortState, encode
from foliot_schemas.subjects import DELAY, PORT

_CHANNELS = {DelayBatch: DELAY, PortState: PORT}
_TURN = 32
"""Steps in a row before other tasks have their turn."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The process's work, and the file for its results."""

    url: str
    nodes: int
    storm: StormSpec
    begin_s: float
    """By time.time()."""
    result: str


class Told(msgspec.Struct, kw_only=True):
    """The published observations."""

    observed: dict[str, int]
    """Per NIC or path, when the observation of its last fault's beginning was published, ns."""
    messages: int
    late_p50_ms: float
    late_p99_ms: float


async def main(work: Work) -> Told:
    """Plays the storm, from `begin_s` on, and returns what was published."""
    fleet = SyntheticFleet(work.nodes, report_s=work.storm.report_s)
    client = await nats.connect(work.url)
    probes, messages, late_s = ProbeMessages(fleet), 0, list[float]()
    gc.collect()
    gc.freeze()
    for number, step in enumerate(FaultStorm(work.storm, fleet).steps()):
        wait_s = work.begin_s + step.at_s - time.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        elif number % _TURN == 0:
            await asyncio.sleep(0)
        late_s.append(time.time() - work.begin_s - step.at_s)
        for message in probes.of(step, time.time_ns()):
            await client.publish(_CHANNELS[type(message)].subject(message.node), encode(message))
            messages += 1
    await client.drain()
    late_s.sort()
    return Told(
        observed=probes.begun, messages=messages,
        late_p50_ms=1e3 * late_s[len(late_s) // 2], late_p99_ms=1e3 * late_s[len(late_s) * 99 // 100],
    )  # fmt: skip


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Work)
    Path(given.result).write_bytes(msgspec.msgpack.encode(asyncio.run(main(given))))
