"""A fleet that exists only as messages: what its probes would hear, its detector say and its agents answer."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import numpy as np

from foliot_remediator.core.actions.decision import Decision
from foliot_remediator.core.remediator import Remediator
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas import DelayBatch, Event, Nic, Node, NodeHomes, Outcome, PortState, Witness
from foliot_schemas.columns import rows_once
from foliot_schemas.names import node_of, parse_path
from foliot_schemas.observation import DelayRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

SECOND = 1_000_000_000
STEP = 100_000_000
START = 1_800_000_000 * SECOND
_WITNESS = {"silent": Witness.FELL_SILENT, "speaks again": Witness.SPEAKS_AGAIN}


@functools.cache
def _nics(path: str) -> tuple[str, str]:
    """The NICs at which a path begins and ends."""
    ends = parse_path(path)
    return ends.source, ends.destination


@functools.cache
def _all_heard(count: int) -> NDArray[np.void]:
    """The rows of so many paths on each of which two probes came; when they came is not said yet."""
    rows = np.zeros(count, DelayRow)
    rows["path"], rows["witness"], rows["sent"], rows["received"] = np.arange(count), Witness.DESTINATION, 2, 2
    return rows


def make_node(name: str, rails: int = 2, entropies: int = 4) -> Node:
    """A node's record; the addresses are of no meaning here."""
    nics = tuple(
        Nic(
            name=f"{name}.rail{rail}", rail=f"rail{rail}", device=f"nic{rail}", address="10.0.0.1", clock=name,
            service_address="10.200.0.1", path_addresses=("100.64.0.1",) * entropies,
            entropies=tuple(range(49200, 49200 + entropies)),
        )
        for rail in range(rails)
    )  # fmt: skip
    return Node(name=name, nics=nics)


class World:
    """A remediator and the fleet around it, in virtual time.

    `dead_nics` have no carrier, `mute` ones have one and yet are not heard, `silent` paths neither; of `idle` ones their
    receivers say nothing; `deaf` nodes report nothing; `unsynchronised` ones do not know their bound. Nodes report every
    `every` steps, and say which probe they heard last if they `count`. Commands are answered at once with `answer`, or
    not at all where it is None.
    """

    EVERY = 1
    """Steps between two reports of a node, if a test says nothing else."""

    def __init__(
        self, nodes: int = 4, rails: int = 2, *, lease: int = 7, count: bool = True, entropies: int = 4, **settings
    ) -> None:
        self.now_ns = START
        self.entropies = entropies
        self.count = count
        self.downs: dict[str, int] = {}
        """Per NIC, how often its kernel has counted its carrier as lost."""
        self.every = self.EVERY
        self.ahead: dict[str, int] = {}
        """Per node, by how much its clock is wrong, in ns."""
        self.last: dict[str, tuple[int, int]] = {}
        """Per path, when a probe was last heard, and its number."""
        self.names = [f"node{number}" for number in range(nodes)]
        self.rails = [f"rail{number}" for number in range(rails)]
        self.core = self.made(RemediatorSettings(**{"primary": "first", **settings}))
        self._paths: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.dead_nics: set[str] = set()
        self.mute: set[str] = set()
        self.silent: set[str] = set()
        self.idle: set[str] = set()
        self.deaf: set[str] = set()
        self.unsynchronised: set[str] = set()
        self.answer: str | None = "done"
        self.decisions: list[Decision] = []
        self.supplies: dict[str, list] = {}
        self.homes: dict[str, NodeHomes] = {}
        """As they were written last."""
        for name in self.names:
            self.see(make_node(name, rails, entropies))
        if lease:
            self.core.hold(lease, self.now_ns)
        self.run(2.0)
        assert not self.commands
        self.decisions.clear()

    def made(self, settings):
        """What is told all messages, and gives the commands."""
        return Remediator(settings)

    # -- what was published -------------------------------------------------------------------------------------------

    @property
    def commands(self):
        """All commands so far, in order."""
        return [command for decision in self.decisions for command in decision.commands]

    @property
    def refusals(self):
        """All refusals so far, in order."""
        return [refusal for decision in self.decisions for refusal in decision.refusals]

    def guards(self):
        """The guards that spoke, in order."""
        return [refusal.policy for refusal in self.refusals]

    def paths(self, node: str):
        """What was last written of a node."""
        return self.supplies[node][-1]

    def backup(self, node: str, peer: str, rail: str):
        """The armed backup; None if there is none."""
        found = [each for each in self.paths(node).backups if (each.peer, each.rail) == (peer, rail)]
        return found[0] if found else None

    # -- what happens -------------------------------------------------------------------------------------------------

    def act(self, actions) -> list:
        """Collects actions, and lets agents answer."""
        mine = []
        for action in actions:
            if isinstance(action, Decision):
                self.decisions.append(action)
                mine += action.commands
            elif isinstance(action, NodeHomes):
                self.homes[action.node] = action
            else:
                self.supplies.setdefault(action.node, []).append(action)
        for command in mine:
            if self.answer is not None and not command.advice:
                self.act(self.core.observe(self.outcome(command, self.answer), self.now_ns))
        return mine

    def outcome(self, command, status: str, **more) -> Outcome:
        """An agent's answer."""
        return Outcome(
            id=f"{command.id}/outcome", command=command.id, verb=command.verb, node=command.node, status=status,
            started_ns=self.now_ns, moved_ns=self.now_ns, fault=command.fault, **more,
        )  # fmt: skip

    def run(self, seconds: float) -> list:
        """Lets time pass: every 100 ms, all nodes report and the clock ticks. Returns the commands given meanwhile."""
        given = []
        for _ in range(round(seconds * SECOND / STEP)):
            self.now_ns += STEP
            self.happen()
            if (self.now_ns - START) // STEP % self.every == 0:
                self.hear()
            if self.now_ns % SECOND == 0:
                given += self.report_ports()
            given += self.act(self.core.tick(self.now_ns))
        return given

    def let_pass(self, seconds: float) -> list:
        """As `run`, for long: nodes report once a second meanwhile."""
        before, self.every = self.every, SECOND // STEP
        given = self.run(seconds)
        self.every = before
        return given

    def happen(self) -> None:
        """What fleets of other kinds do beside, in each step."""

    def hear(self) -> None:
        """All nodes report what they hear."""
        for name in self.names:
            if name not in self.deaf:
                self.act(self.core.observe(self.batch(name), self.now_ns))

    def join(self, name: str) -> None:
        """A node is new."""
        self.names.append(name)
        self.see(make_node(name, len(self.rails), self.entropies))

    def report_ports(self) -> list:
        """All nodes report their ports; returns the commands given."""
        return [
            command
            for name in self.names if name not in self.deaf
            for rail in self.rails
            for command in self.port(f"{name}.{rail}", good=f"{name}.{rail}" not in self.dead_nics)
        ]  # fmt: skip

    def batch(self, name: str, witness: int = Witness.DESTINATION) -> DelayBatch:
        """A node's regular report of its incoming paths, of which those that nobody can hear are missing probes."""
        paths = self._incoming(name)
        if self.idle:
            paths = tuple(path for path in paths if path not in self.idle)
        rows = self.rows(name, paths)
        if witness != Witness.DESTINATION:
            rows["witness"] = witness
        batch = DelayBatch.of(
            rows, node=name, at_ns=self.now_ns + self.ahead.get(name, 0), interval_ns=self.every * STEP, paths=paths,
            every_ns=self.every * STEP,
            bound_ns=-1 if name in self.unsynchronised else 1_000,
        )  # fmt: skip
        # Decoding has made them by the time that a service is told of a batch. To do so here would take longer than
        # what the remediator does with them.
        rows_once(batch, lambda: rows)
        return batch

    def rows(self, name: str, paths: tuple[str, ...]) -> NDArray[np.void]:
        """What a node says of these paths, which end at it."""
        rows = _all_heard(len(paths)).copy()
        word = self.now_ns - 1_000_000, (self.now_ns - START) // 1_000_000
        ahead_ns = self.ahead.get(name, 0)
        if self.silent or self.dead_nics or self.mute:
            heard = [self.is_heard(path) for path in paths]
            rows["sent"] = rows["received"] = np.multiply(heard, 2)
            self.last.update(dict.fromkeys(itertools.compress(paths, heard), word))
            last_ns, sequence = np.array([self.last.get(path, (0, 0)) for path in paths], np.int64).reshape(-1, 2).T
            rows["last_ns"] = np.where(last_ns, last_ns + ahead_ns, 0)
            rows["sequence"] = sequence * self.count
            return rows
        self.last.update(dict.fromkeys(paths, word))
        rows["last_ns"], rows["sequence"] = word[0] + ahead_ns, word[1] * self.count
        return rows

    def last_word(self, path: str) -> tuple[int, int]:
        """When a path's receiver, by its clock, says it heard it last, and the probe's number; 0: it does not say."""
        last_ns, sequence = self.last.get(path, (0, 0))
        return last_ns and last_ns + self.ahead.get(node_of(_nics(path)[1]), 0), sequence * self.count

    def is_heard(self, path: str) -> bool:
        """Whether probes come through."""
        nics = _nics(path)
        return path not in self.silent and self.dead_nics.isdisjoint(nics) and self.mute.isdisjoint(nics)

    def _incoming(self, name: str) -> tuple[str, ...]:
        key = name, *self.names
        if key not in self._paths:
            self._paths[key] = tuple(
                f"{peer}.{rail}>{name}.{rail}#{entropy}"
                for peer in self.names for rail in self.rails for entropy in range(self.entropies) if peer != name
            )  # fmt: skip
        return self._paths[key]

    def flap(self, nic: str, state: str, count: int = 1, *, confidence: float = 1.0, **evidence) -> list:
        """What befalls a NIC: on the wire, in its port's own word, and in an event; returns the commands given."""
        (self.dead_nics.add if "down" in state else self.dead_nics.discard)(nic)
        self.downs[nic] = count
        before = self.port(nic, good="down" not in state) if nic in self.core.inventory.nics else []
        return before + self.see(self.flap_event(nic, state, count, confidence=confidence, **evidence))

    def flap_event(self, nic: str, state: str, count: int = 1, *, confidence: float = 1.0, **evidence) -> Event:
        """The event alone."""
        fault = f"boot/{nic}/carrier-{count}"
        at_ns = self.now_ns + self.ahead.get(node_of(nic), 0)
        return Event(
            id=f"{fault}/{state}", kind="flap", who=nic, state=state, at_ns=at_ns, since_ns=at_ns,
            confidence=confidence, fault=fault,
            evidence={"suppressed": False, "reuse_at_ns": 0, "carrier_down_count": count, **evidence},
        )  # fmt: skip

    def path_event(self, path: str, state: str, *, since_ns: int | None = None) -> list:
        """What befalls a path: in its receiver's own word, and in an event; returns the commands given."""
        if self.core.inventory.path(path) is not None and state != "speaking":
            self.word(path, state)
        return self.lie(path, state, since_ns, self.last_word(path)[1])

    def word(self, path: str, state: str) -> None:
        """A receiver says that a path fell silent, that it speaks again, or of thirty probes a third did not come."""
        self.see(self.word_of(path, state))

    def word_of(self, path: str, state: str) -> DelayBatch:
        """The receiver's word alone."""
        rows = np.zeros(1, DelayRow)
        rows["witness"] = _WITNESS.get(state, Witness.DESTINATION)
        if state == "lossy":
            rows["sent"], rows["received"] = 30, 20
        if state != "silent":
            self.last[path] = self.now_ns - 1_000_000, (self.now_ns - START) // 1_000_000
        rows["last_ns"], rows["sequence"] = self.last_word(path)
        node = node_of(parse_path(path).destination)
        return DelayBatch.of(
            rows, node=node, at_ns=self.now_ns + self.ahead.get(node, 0), interval_ns=self.every * STEP,
            every_ns=self.every * STEP,
            paths=(path,), bound_ns=-1 if node in self.unsynchronised else 1_000,
        )  # fmt: skip

    def lie(self, path: str, state: str, since_ns: int | None = None, told: int = 0) -> list:
        """A path's event alone, which may say what probe its receiver had heard last (`told`); returns the commands."""
        ahead_ns = self.ahead.get(node_of(path.partition(">")[2].partition("#")[0]), 0)
        since_ns = self.now_ns + ahead_ns - 150_000_000 if since_ns is None else since_ns
        fault = f"{path}/silent-{since_ns}"
        return self.see(
            Event(
                id=f"{fault}/{state}/{self.now_ns}",
                kind="path",
                who=path,
                state=state,
                at_ns=self.now_ns + ahead_ns,
                since_ns=since_ns,
                fault=fault,
                evidence=({"sent": 30, "lost": 10} if state == "lossy" else {})
                | ({"last_heard_sequence": told} if told else {}),
            )
        )

    def see(self, message) -> list:
        """Any message, now; returns the commands given."""
        return self.act(self.core.observe(message, self.now_ns))

    def port(self, nic: str, *, good: bool) -> list:
        """A port's report, now; returns the commands given."""
        return self.see(self.port_word(nic, good=good))

    def port_word(self, nic: str, *, good: bool) -> PortState:
        """The report alone."""
        return PortState(
            node=node_of(nic), nic=nic, at_ns=self.now_ns + self.ahead.get(node_of(nic), 0), carrier=good,
            admin_up=True,
            carrier_down_count=self.downs.get(nic, 1), carrier_up_count=1, fault="boot",
        )  # fmt: skip
