"""A fleet that exists only as messages: those of the probes of any number of nodes.

Each node exchanges traffic with its nearest neighbours on a ring of all nodes, over every rail and entropy. Well-placed
jobs do the same. No node knows the whole fleet.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import TYPE_CHECKING

import numpy as np

from foliot_schemas import DelayBatch, DelayRow, Nic, Node, PortState, Witness
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foliot_schemas.names import Path

RAILS = ("rail0", "rail1")
ENTROPIES = 4
BOUND_NS = 1_000
"""The bound of every clock: the whole fleet reads the machine's own."""
_PORTS = tuple(range(49_200, 49_200 + ENTROPIES))
_DELAY_NS = 20_000
_FABRIC = int(ipaddress.IPv4Address("10.0.0.0"))
_SWEEP_S = 5
"""Interval of probes on a path that nobody uses. All paths are reported like such paths."""
_REMEMBERED = 4_096
"""Nodes whose paths' names are kept: more than report at the same time."""


class SyntheticFleet:
    """Nodes by number, with the present faults of their NICs and paths.

    Parameters:
        nodes: the number of nodes, more than `degree`.
        degree: neighbours of each, an even number.
        report_s: interval of the regular reports.
    """

    def __init__(self, nodes: int, degree: int = 10, report_s: float = 1.0) -> None:
        if nodes <= degree or degree % 2:
            raise ValueError(f"{nodes} nodes cannot have {degree} neighbours each; give more nodes, or an even number")
        self.nodes = nodes
        self.degree = degree
        self.lost: dict[str, int] = {}
        """NICs without a carrier, and the time of its loss."""
        self.cut: dict[str, int] = {}
        """Paths that drop everything, and the time since then."""
        self._downs: dict[str, int] = {}
        self._interval_ns = round(report_s * 1e9)
        self._per_report = max(round(_SWEEP_S * report_s), 1)
        rows = self._blank(2 * len(RAILS) * degree * ENTROPIES)
        self._columns = {name: rows[name].tobytes() for name in DelayRow.names or ()}
        self._sent, self._received = rows["sent"].copy(), rows["received"].copy()
        self.paths_of = functools.lru_cache(_REMEMBERED)(self._paths_of)

    def name(self, number: int) -> str:
        """The node's name."""
        return f"node{number % self.nodes:06}"

    def neighbours(self, number: int) -> list[int]:
        """The numbers of its peers."""
        steps = range(1, self.degree // 2 + 1)
        return [(number + step) % self.nodes for step in (*(-step for step in reversed(steps)), *steps)]

    def node(self, number: int) -> Node:
        """The node's inventory record. Addresses are of the right form; no two of a rail are the same."""
        name = self.name(number)
        nics = tuple(
            Nic(
                name=nic_name(name, rail), rail=rail, device=f"eth{place}", clock=name,
                address=str(ipaddress.IPv4Address(_FABRIC + (place << 20) + number)),
                service_address=str(ipaddress.IPv4Address(_FABRIC + (8 + place << 20) + number)),
                path_addresses=tuple(
                    str(ipaddress.IPv4Address(_FABRIC + (16 + ENTROPIES * place + entropy << 20) + number))
                    for entropy in range(ENTROPIES)
                ),
                entropies=_PORTS,
            )
            for place, rail in enumerate(RAILS)
        )  # fmt: skip
        peers = tuple(self.name(peer) for peer in self.neighbours(number))
        return Node(name=name, nics=nics, agent_port=7947, probe_port=7946, peers=peers)

    # -- faults -------------------------------------------------------------------------------------------------------

    def lose(self, nic: str, now_ns: int) -> None:
        """Removes the NIC's carrier."""
        self.lost[nic] = now_ns
        self._downs[nic] = self._downs.get(nic, 0) + 1

    # -- messages -----------------------------------------------------------------------------------------------------

    def port(self, number: int, rail: str, now_ns: int, *, change: bool) -> PortState:
        """The kernel's state of a NIC."""
        nic = nic_name(self.name(number), rail)
        downs, carrier = self._downs.get(nic, 0), nic not in self.lost
        return PortState(
            node=self.name(number), nic=nic, at_ns=now_ns, carrier=carrier, admin_up=True, change=change, fault="boot",
            carrier_down_count=downs, carrier_up_count=1 + downs - (not carrier),
        )  # fmt: skip

    def report(self, number: int, now_ns: int) -> DelayBatch:
        """The regular report: all paths from and to the node."""
        paths, places = self.paths_of(number)
        last_ns = np.full(len(paths), now_ns - 1_000_000)
        columns = self._columns
        dead = [(place, since_ns) for place, since_ns in self._dead(number, places) if place % 2]
        if dead:
            sent, received = self._sent.copy(), self._received.copy()
            for place, since_ns in dead:
                # A node that hears nothing cannot know how much was sent.
                sent[place] = received[place] = 0
                last_ns[place] = since_ns - 1_000_000
            columns = columns | {"sent": sent.tobytes(), "received": received.tobytes()}
        return self._batch(number, now_ns, paths, columns | {"last_ns": last_ns.tobytes()})

    def word(self, number: int, now_ns: int, witness: int, paths: Iterable[Path], last_ns: int) -> DelayBatch:
        """A report at once, of these paths alone."""
        names = tuple(map(str, paths))
        rows = np.zeros(len(names), DelayRow)
        rows["path"], rows["witness"], rows["last_ns"] = range(len(names)), witness, last_ns
        return DelayBatch.of(
            rows, node=self.name(number), at_ns=now_ns, interval_ns=self._interval_ns, bound_ns=BOUND_NS, paths=names,
            every_ns=self._interval_ns,
        )  # fmt: skip

    # -- inside -------------------------------------------------------------------------------------------------------

    def _blank(self, count: int) -> NDArray[np.void]:
        rows = np.zeros(count, DelayRow)
        rows["path"], rows["witness"] = range(count), np.arange(count) % 2
        rows["sent"] = self._per_report
        rows["received"] = np.where(rows["witness"] == Witness.DESTINATION, self._per_report, 0)
        for name in ("least_ns", "median_ns", "p99_ns"):
            rows[name] = np.where(rows["witness"] == Witness.DESTINATION, _DELAY_NS, 0)
        return rows

    def _paths_of(self, number: int) -> tuple[tuple[str, ...], dict[str, int]]:
        """The names of each stream's outgoing and incoming path, and their places in the report."""
        own = self.name(number)
        names = tuple(
            name
            for peer in map(self.name, self.neighbours(number))
            for rail in RAILS
            for entropy in range(ENTROPIES)
            for name in (f"{own}.{rail}>{peer}.{rail}#{entropy}", f"{peer}.{rail}>{own}.{rail}#{entropy}")
        )
        return names, {name: place for place, name in enumerate(names)}

    def _dead(self, number: int, places: dict[str, int]) -> Iterable[tuple[int, int]]:
        """Places of the report that are not heard, and the beginnings of their silences."""
        own, neighbours = self.name(number), [*map(self.name, self.neighbours(number))]
        if self.cut:
            for peer in neighbours:
                for rail in RAILS:
                    path = f"{peer}.{rail}>{own}.{rail}#0"
                    if path in self.cut:
                        yield places[path], self.cut[path]
        if not self.lost:
            return
        for rail in RAILS:
            for peer in neighbours:
                since_ns = self.lost.get(nic_name(own, rail)) or self.lost.get(nic_name(peer, rail))
                if since_ns:
                    for entropy in range(ENTROPIES):
                        yield places[f"{peer}.{rail}>{own}.{rail}#{entropy}"], since_ns

    def _batch(self, number: int, now_ns: int, paths: tuple[str, ...], columns: dict[str, bytes]) -> DelayBatch:
        return DelayBatch(
            node=self.name(number), at_ns=now_ns, interval_ns=self._interval_ns, bound_ns=BOUND_NS,
            paths=paths, columns=columns, every_ns=self._interval_ns,
        )  # fmt: skip
