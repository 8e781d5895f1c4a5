"""The probes of a simulated fleet: publishes a storm as it falls due. A process of `bench.fleet`."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

import msgspec
import nats

from foliot_lab.crowd import Crowd
from foliot_lab.storm import Storm, StormSpec
from foliot_schemas import Witness, encode
from foliot_schemas.names import Path, nic_name
from foliot_schemas.subjects import DELAY, PORT

if TYPE_CHECKING:
    from foliot_lab.storm import Step
    from foliot_schemas import DelayBatch

_TURN = 32
"""Steps in a row before others have their turn."""
_LAST_NS = 10_000_000
"""Before a cut: when the path was last heard."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, and where to write what was done."""

    url: str
    nodes: int
    storm: StormSpec
    begin_s: float
    """By time.time()."""
    result: str


class Told(msgspec.Struct, kw_only=True):
    """What was published."""

    observed: dict[str, int]
    """Per NIC or path, when the observation of its last fault's beginning was published, ns."""
    messages: int
    late_p50_ms: float
    late_p99_ms: float


class Load:
    """Plays the steps of a storm."""

    def __init__(self, client: Any, crowd: Crowd) -> None:
        self._client = client
        self._crowd = crowd
        self.observed: dict[str, int] = {}
        self.messages = 0

    async def play(self, step: Step) -> None:
        """Does and says what a step is about."""
        crowd, now_ns, node = self._crowd, time.time_ns(), step.node
        nic = nic_name(crowd.name(node), step.rail) if step.rail else ""
        match step.kind:
            case "report":
                await self._tell(crowd.report(node, now_ns))
            case "port":
                await self._port(step, now_ns, change=False)
            case "lose":
                crowd.lose(nic, now_ns)
                self.observed[nic] = now_ns
                await self._port(step, now_ns, change=True)
            case "return":
                crowd.lost.pop(nic, None)
                await self._port(step, now_ns, change=True)
            case "mute":
                await self._turn_all(step, now_ns, Witness.FELL_SILENT, now_ns - 130_000_000 - _LAST_NS)
            case "unmute":
                await self._turn_all(step, now_ns, Witness.SPEAKS_AGAIN, now_ns)
            case "cut":
                crowd.cut[str(self._path(step))] = now_ns
            case "fell":
                path = self._path(step)
                self.observed[str(path)] = now_ns
                since_ns = crowd.cut[str(path)] - _LAST_NS
                await self._tell(crowd.word(step.peer, now_ns, Witness.FELL_SILENT, [path], since_ns))
            case "mend":
                crowd.cut.pop(str(self._path(step)), None)
                await self._tell(crowd.word(step.peer, now_ns, Witness.SPEAKS_AGAIN, [self._path(step)], now_ns))

    def _path(self, step: Step) -> Path:
        name = self._crowd.name
        return Path(nic_name(name(step.node), step.rail), nic_name(name(step.peer), step.rail), 0)

    async def _turn_all(self, step: Step, now_ns: int, witness: int, last_ns: int) -> None:
        """The paths in use of a lost NIC, by all that hear them no more, or again."""
        crowd = self._crowd
        lost = nic_name(crowd.name(step.node), step.rail)
        others = {peer: nic_name(crowd.name(peer), step.rail) for peer in crowd.neighbours(step.node)}
        others = {peer: nic for peer, nic in others.items() if nic not in crowd.lost}
        await self._tell(
            crowd.word(step.node, now_ns, witness, (Path(nic, lost, 0) for nic in others.values()), last_ns)
        )
        for peer, nic in others.items():
            await self._tell(crowd.word(peer, now_ns, witness, [Path(lost, nic, 0)], last_ns))

    async def _port(self, step: Step, now_ns: int, *, change: bool) -> None:
        state = self._crowd.port(step.node, step.rail, now_ns, change=change)
        await self._client.publish(PORT.subject(state.node), encode(state))
        self.messages += 1

    async def _tell(self, batch: DelayBatch) -> None:
        await self._client.publish(DELAY.subject(batch.node), encode(batch))
        self.messages += 1


async def main(work: Work) -> Told:
    """Plays the storm, from `begin_s` on, and returns what was published."""
    crowd = Crowd(work.nodes, report_s=work.storm.report_s)
    client = await nats.connect(work.url)
    load, late_s = Load(client, crowd), list[float]()
    gc.collect()
    gc.freeze()
    for number, step in enumerate(Storm(work.storm, crowd).steps()):
        wait_s = work.begin_s + step.at_s - time.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        elif number % _TURN == 0:
            await asyncio.sleep(0)
        late_s.append(time.time() - work.begin_s - step.at_s)
        await load.play(step)
    await client.drain()
    late_s.sort()
    return Told(
        observed=load.observed, messages=load.messages,
        late_p50_ms=1e3 * late_s[len(late_s) // 2], late_p99_ms=1e3 * late_s[len(late_s) * 99 // 100],
    )  # fmt: skip


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Work)
    File(given.result).write_bytes(msgspec.msgpack.encode(asyncio.run(main(given))))
