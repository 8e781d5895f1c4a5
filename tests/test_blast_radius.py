"""A detector that lies on a real bus with a real remediator moves nothing, and each lie is refused with its numbers.

It has credentials of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from remediator_world import World

from foliot.bus.retry import heed_cancellation
from foliot_remediator import service
from foliot_schemas import Event, Outcome, PortState
from foliot_schemas.subjects import COMMAND, DELAY, EVENT, INVENTORY, OUTCOME, PATHS, PORT

pytestmark = pytest.mark.nats

NODES = 4
STILL_S = 0.25
"""Between two reports: a remediator that has not heard of a path for longer cannot know that an event about it is a
lie."""
ATTEMPTS = 5


class Fleet:
    """Nodes whose probes say that all is well, or what is not, and whose agents do what they are told.

    Each has its own credentials.
    """

    def __init__(self, secured):
        self._secured = secured
        self.world = World(nodes=NODES, lease=0)
        self.nics = [f"{node}.{rail}" for node in self.world.names for rail in self.world.rails]
        self.commands, self.refusals, self.paths = [], [], {}
        self._probes, self._agents = {}, {}
        self.stood_still = False
        """Whether this machine or its bus did, so that the probes' words came late."""

    async def join(self):
        """Everybody is there, and somebody looks on."""
        for name in self.world.names:
            self._secured.keyring.issue_node(name)
            self._probes[name] = await self._secured.bus("probe", name)
            self._agents[name] = agent = await self._secured.bus("agent", name)
            await agent.put(INVENTORY, name, self.world.core.inventory.nodes[name])
            await agent.subscribe(COMMAND, self._on_command, "", name)
        reader = await self._secured.bus("gateway")
        await reader.subscribe(EVENT, self._on_refusal, "refusal", "")
        await reader.watch(PATHS, self._on_paths)

    async def report(self):
        """Probes report what they hear, until cancelled."""
        while True:
            began_s = time.monotonic()
            for name, probe in self._probes.items():
                self.world.now_ns = time.time_ns()
                await probe.publish(DELAY, self.world.batch(name), name)
            for nic in self.nics:
                await self.tell_port(nic)
            await self._probes[self.world.names[0]]._client.flush()
            heed_cancellation()
            await asyncio.sleep(0.1)
            self.stood_still |= time.monotonic() - began_s > STILL_S

    async def tell_port(self, nic):
        """A kernel's word; its time."""
        node, good, at_ns = nic.partition(".")[0], nic not in self.world.dead_nics, time.time_ns()
        port = PortState(
            node=node, nic=nic, at_ns=at_ns, carrier=good, admin_up=True, carrier_down_count=1, carrier_up_count=1,
            fault="boot",
        )  # fmt: skip
        await self._probes[node].publish(PORT, port, node)
        return at_ns

    @property
    def is_armed(self):
        """Whether every node has all its backups."""
        backups = (NODES - 1) * len(self.world.rails)
        return len(self.paths) == NODES and all(len(paths.backups) == backups for paths in self.paths.values())

    async def _on_command(self, command, _subject):
        if command.id not in {before.id for before in self.commands}:  # what is not acknowledged in time comes again
            self.commands.append(command)
        outcome = Outcome(
            id=f"{command.id}/outcome", command=command.id, verb=command.verb, node=command.node, status="done",
            started_ns=time.time_ns(), fault=command.fault, away=command.away, back=command.back,
            placements=command.placements,
        )  # fmt: skip
        self._agents[command.node].publish_kept(OUTCOME, outcome, outcome.verb, outcome.node)

    async def _on_refusal(self, event, _subject):
        if event.id not in {before.id for before in self.refusals}:
            self.refusals.append(event)

    async def _on_paths(self, name, paths):
        self.paths[name] = paths


@contextlib.asynccontextmanager
async def joined(secured, until):
    """Four healthy nodes, each kept supplied with backups by a real remediator."""
    remediator = asyncio.create_task(service.main())  # first: whoever runs on a node makes no streams
    fleet = Fleet(secured)
    await fleet.join()
    reporting = asyncio.create_task(fleet.report())
    try:
        await until(lambda: fleet.is_armed or remediator.done())
        fleet.stood_still = False
        yield fleet
    finally:
        for task in (reporting, remediator):
            task.cancel()
        await asyncio.gather(reporting, remediator, return_exceptions=True)
        await secured.disconnect()


@pytest.fixture
def settings(secured, monkeypatch):
    """The remediator's, by its environment."""
    monkeypatch.setenv("FOLIOT_BUS__URL", secured.settings_for("remediator").url)
    monkeypatch.setenv("FOLIOT_BUS__CREDENTIALS", secured.settings_for("remediator").credentials)
    monkeypatch.setenv("FOLIOT_TELEMETRY__ENDPOINT", "")
    monkeypatch.delenv("FOLIOT_CONFIG", raising=False)


def loss(nic, count, at_ns):
    """What an honest detector says of a lost carrier."""
    fault = f"boot/{nic}/carrier-{count}"
    evidence = {"carrier_down_count": count, "flaps": 1, "suppressed": False, "reuse_at_ns": 0}
    return Event(
        id=f"{fault}/down",
        kind="flap",
        who=nic,
        state="down",
        at_ns=at_ns,
        since_ns=at_ns,
        fault=fault,
        evidence=evidence,
    )


def silence(path, state):
    """What an honest detector says of a path that went silent a moment ago, or loses packets."""
    at_ns = time.time_ns()
    fault = f"{path}/{state}-{at_ns}"
    evidence = {"witness": "node0", "sent_on_path": True} if state == "silent" else {"sent": 40, "lost": 12}
    return Event(
        id=f"{fault}/{state}", kind="path", who=path, state=state, at_ns=at_ns, since_ns=at_ns - 150_000_000,
        fault=fault, evidence=evidence,
    )  # fmt: skip


@pytest.mark.parametrize("nodes", [NODES, NODES // 2], ids=["of everybody", "of one half"])
async def test_a_lying_detector_moves_nothing_and_each_lie_is_refused(secured, settings, until, nodes):
    """All carriers lost, all paths in use silent and lossy, again and again: ports and receivers say otherwise.

    One true loss among them is moved.
    """
    for attempt in range(1, ATTEMPTS + 1):
        async with joined(secured, until) as fleet:
            try:
                await lie(fleet, secured, until, nodes)
                break
            except (AssertionError, TimeoutError):
                # While the machine stood still nobody could speak against the lies, and the lease may have ended.
                if not fleet.stood_still or attempt == ATTEMPTS:
                    raise
        await secured.begin_anew()


async def lie(fleet, secured, until, nodes):
    """Lies three times about so many nodes, and tells the truth once."""
    liar, lied = await secured.bus("detector"), fleet.world.names[:nodes]
    nics = [nic for nic in fleet.nics if nic.partition(".")[0] in lied]
    used = {
        f"{node}.{way.via}>{way.peer}.{way.via}#{way.entropy}" for node in lied for way in fleet.paths[node].placements
    }
    told = []
    for count in (2, 3, 4):
        lies = [loss(nic, count, time.time_ns()) for nic in nics]
        lies += [silence(path, "lossy" if count == 3 else "silent") for path in sorted(used)]
        for lie in lies:
            liar.publish_kept(EVENT, lie, lie.kind, lie.who)
        told += lies
        # Each is looked at, and said to be refused, before the next takes its place.
        await until(lambda: len(fleet.refusals) == len(told))  # noqa: B023 - awaited in its turn

    assert fleet.commands == []
    assert {event.policy for event in fleet.refusals} == {"contradicted"}
    assert {event.cause for event in fleet.refusals} == {lie.id for lie in told}
    said = {event.cause: event.evidence for event in fleet.refusals}
    assert all(said[lie.id]["port_said_ms_ago"] < 3_000 for lie in told if lie.kind == "flap")
    assert all(said[lie.id]["heard_ms_ago"] < 3_000 for lie in told if lie.state == "silent")
    assert all(said[lie.id]["lost_reported"] == 0 for lie in told if lie.state == "lossy")
    assert fleet.is_armed

    victim = f"{lied[-1]}.rail0"
    fleet.world.dead_nics.add(victim)
    true = loss(victim, 5, await fleet.tell_port(victim))
    liar.publish_kept(EVENT, true, true.kind, true.who)
    await until(lambda: fleet.paths[lied[-1]].away == ("rail0",))
    # The last lie about the NIC is looked at again and again: it may be what comes true first, if the port's word is
    # here before the event.
    caused = {(command.verb, command.cause) for command in fleet.commands}
    assert caused in ({("reroute", true.id)}, {("reroute", loss(victim, 4, 0).id)})
    assert {name: paths.away for name, paths in fleet.paths.items() if paths.away} == {lied[-1]: ("rail0",)}
