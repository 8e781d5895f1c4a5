"""The example of docs/contention.md: a collision, and what detector, remediator, gateway and commands say of it.

It is told in virtual time, by what nodes of a model would tell, so that each run says the same.
"""

import pathlib
import re

import msgspec
from leaf_spine import RAIL, LeafSpine, nic

from foliot.bus.observer import Heard
from foliot.cli import why
from foliot.cli.message_lines import in_text
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state import queries
from foliot_gateway.state.store import Store
from foliot_remediator.core.actions.decision import Decision
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.settings import PlacementRule, RemediatorSettings
from foliot_schemas import DelayBatch, Event, FlowBatch, HopBatch, Job, Node, NodePaths, Outcome, encode
from foliot_schemas.names import Path
from foliot_schemas.subjects import COMMAND, EVENT

DOCUMENT = pathlib.Path(__file__).parents[1] / "docs" / "contention.md"
JOBS = {"large": (0, 2), "small": (1, 3)}
ALONE_S, TOGETHER_S = 3.0, 5.0


class Cluster(LeafSpine):
    """A fabric whose nodes tell the gateway and the remediator as well, and do what that commands."""

    def __init__(self, improve):
        self.gateway = Store(GatewaySettings(), lambda: self.now_ns)
        self.remediator = None
        self.story = []
        """Events and commands, in order."""
        self._improve = improve
        super().__init__(spines=4)
        self.report_every = 1

    def start_detector(self):
        """And the others. The hash of the leaves leads both flows over the first spine."""
        for one, other in JOBS.values():
            entropies = range(self.entropies)
            self.ways[one, other] = next(
                each for each in entropies if self.spine_of[Path(nic(one), nic(other), each)] == 0
            )
        begun_there = tuple(
            PlacementRule(
                node=f"node{one}", peer=f"node{other}", rail=RAIL, via=RAIL, entropy=self.ways[one, other], pinned=False
            )
            for one, other in JOBS.values()
        )
        settings = RemediatorSettings(improve=self._improve, primary="first", placements=begun_there)
        self.remediator = Remediator(settings)
        super().start_detector()
        self.remediator.hold(7, self.now_ns)
        for name, hosts in JOBS.items():
            self.tell(Job(name=name, nics=tuple(map(nic, hosts)), since_ns=self.now_ns))

    def tell(self, message):
        """All of them get it, and then what the detector says of it."""
        known = len(self.events)
        super().tell(message)
        self._fold(message)
        self._act(self.remediator.observe(message, self.now_ns))
        for event in self.events[known:]:
            self.story.append(event)
            self.gateway.event(event)
            self._act(self.remediator.observe(event, self.now_ns))

    def run(self, seconds):
        """As the model does, with the remediator's ticks."""
        for _ in range(round(seconds * 10)):
            super().run(0.1)
            self._act(self.remediator.tick(self.now_ns))

    def _fold(self, message):
        """The gateway takes what the bus would bring it."""
        store = self.gateway
        match message:
            case Node():
                store.fleet.fold_node(message.name, message)
            case NodePaths():
                store.fleet.fold_wanted(message.node, message)
            case DelayBatch():
                store.fleet.fold_delays(message)
            case HopBatch():
                store.fleet.fold_hops(message)
            case FlowBatch():
                store.jobs.fold_flows(message)
            case Job():
                store.jobs.fold_job(message.name, message)

    def _act(self, actions):
        """Agents carry out what is no advice."""
        for decision in actions:
            if not isinstance(decision, Decision):
                continue
            assert decision.refusals == ()
            for command in decision.commands:
                self.story.append(command)
                if command.advice:
                    continue
                for way in command.placements:
                    self.move(int(command.node[4:]), int(way.peer[4:]), way.entropy)
                done = Outcome(
                    id=f"{command.id}/outcome", command=command.id, verb=command.verb, node=command.node, status="done",
                    started_ns=self.now_ns, moved_ns=self.now_ns,
                )  # fmt: skip
                self._act(self.remediator.observe(done, self.now_ns))


def collided(improve):
    """Each job alone for a while, and then both together, for as long as it takes until the detector says so."""
    cluster = Cluster(improve)
    cluster.run(2)
    for hosts in JOBS.values():
        alone = cluster.begin(*hosts)
        cluster.run(ALONE_S)
        cluster.end(alone)
        cluster.run(1)
    for hosts in JOBS.values():
        cluster.begin(*hosts)
    cluster.run(TOGETHER_S)
    return cluster


def blocks(language):
    """The examples of a language in the document, as lines."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    return [block.splitlines() for block in found]


def watched(message):
    """The line of `foliot watch`."""
    channel = EVENT if isinstance(message, Event) else COMMAND
    subject = channel.subject(*((message.kind, message.who) if channel is EVENT else (message.verb, message.node)))
    return in_text(Heard(subject, encode(message), {}, 0))


def test_the_event_and_its_cause_are_as_the_document_shows_them():
    """Every figure: who shares the link, what they get, and why the job is slow. Nothing moves on advice."""
    cluster = collided("advise")
    event, command = cluster.story
    (shown,) = blocks("json")
    assert msgspec.json.decode("\n".join(shown), type=Event) == event
    found = msgspec.convert(msgspec.to_builtins(queries.why(cluster.gateway, "large")), why.JobWhy)
    assert [*why.of_job(found)] in blocks("text")
    assert [watched(command)] in blocks("text")


def test_the_move_and_its_end_are_as_the_document_shows_them():
    """One flow leaves the link, and both get what they did alone."""
    cluster = collided("act")
    _, *after = cluster.story
    assert [watched(message) for message in after] in blocks("text")
    assert [view.slowest_share > 0.95 for view in queries.jobs(cluster.gateway)] == [True, True]
