"""The health of every NIC and path: its state, when it was last heard, and the credibility of its node."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from foliot_remediator.core.state.hold_down import HoldDown
from foliot_remediator.core.state.inventory import is_nic, nics_of
from foliot_remediator.core.state.path_reports import PathReports
from foliot_remediator.core.state.port_reports import PortReports
from foliot_remediator.core.state.retention import Index, Retained
from foliot_remediator.core.state.state_machine import Input, State, Track
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from foliot_remediator.core.state.incidents import Incident
    from foliot_remediator.core.state.inventory import Inventory
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas import DelayBatch, PortState

_UNHEARD_NS = 300_000_000
"""A path that was not heard for so long counts as unheard, if its receiver reports. It is more than a probe's
interval, also of the slow sweep."""
_UNREAD_NS = 5_000_000_000
"""If for so long nothing was read of any node, nobody is left who could speak against an event. A machine stands still
for a few seconds at most."""
_TRANSIT_NS = 20_000_000
"""How long a probe that was sent before a silence may still have waited in a queue."""


class LastHeard(enum.Enum):
    """The latest word of a path's receiver on it."""

    HEALTHY = enum.auto()
    UNHEARD = enum.auto()
    """The receiver reports, the sender's process lives, and yet nothing was heard."""
    UNKNOWN = enum.auto()
    """The receiver says nothing, or the sender's process is dead: no judgement."""


class PathHealth:
    """States of NICs and paths, and what their nodes report. Nothing is stored of those never in trouble.

    All times are those of the `now_ns` given, so that a node with a wrong clock is wrong about itself alone.
    """

    def __init__(self, settings: RemediatorSettings, inventory: Inventory) -> None:
        self.tracks: Retained[str, Track] = Retained(nics_of)
        self.troubled = Index(nics_of)
        """Paths that are not up, by NIC."""
        self.dead: set[str] = set()
        """Nodes whose probe is dead: silence says nothing of their paths."""
        self.ports = PortReports()
        self.reports = PathReports(inventory)
        holds_s = settings.probation_s, settings.longest_probation_s, settings.forget_s
        self._hold = HoldDown(*(round(hold_s * 1e9) for hold_s in holds_s))
        self._within_ns = round(settings.healthy_within_s * 1e9)

    # -- in -----------------------------------------------------------------------------------------------------------

    def feed(self, who: str, given: Input, now_ns: int) -> State:
        """Takes an input to the state of a NIC or path; returns the state before."""
        track = self.tracks.get(who)
        if track is None:
            track = self.tracks[who] = Track()
        before = track.feed(given, now_ns, self._hold)
        if is_nic(who):
            return before
        if track.state is not State.UP:
            self.troubled.add(who)
            return before
        self.troubled.discard(who)
        if not track.strikes:
            self.tracks.pop(who)
        return before

    def settle(self, who: str, at_ns: int) -> None:
        """Ends a probation that was over by this time, and well: nobody said anything of the NIC or path until then."""
        track = self.tracks.get(who)
        if track is not None and track.state is State.PROBATION and track.due_ns <= at_ns:
            self.feed(who, Input.TIMER, track.due_ns)

    def take_delays(self, batch: DelayBatch, now_ns: int) -> list[str]:
        """Takes what a node heard; returns the paths that fell silent by its word."""
        fell, again = self.reports.take(batch, now_ns)
        for path in again:
            if self.state(path) is State.SUSPECT:
                self.feed(path, Input.SPEAKS_AGAIN, now_ns)
        for path in fell:
            self.feed(path, Input.FELL_SILENT, now_ns)
        return fell

    def take_port(self, word: PortState, now_ns: int) -> None:
        """Takes what a node says of a port."""
        self.ports.take(word, self.reports.here_ns(word.node, word.at_ns, now_ns), now_ns)

    # -- out: NICs and nodes ------------------------------------------------------------------------------------------

    def state(self, who: str) -> State:
        """The state of a NIC or path by itself; a path's NICs have theirs."""
        track = self.tracks.get(who)
        return State.UP if track is None else track.state

    def since_ns(self, who: str) -> int:
        """When it came into its state; 0: it was never in another."""
        track = self.tracks.get(who)
        return 0 if track is None else track.since_ns

    def nic_state(self, nic: str) -> State:
        """The NIC's state; one whose port is reported to be down is not up, whatever events said."""
        state, port = self.state(nic), self.ports.get(nic)
        return State.SUSPECT if state is State.UP and port is not None and not port.good else state

    def said_good_ns(self, nic: str, from_ns: int) -> int:
        """For how long, from a time on, reports have said that the NIC's port is good.

        It is -1 if the last one did not, or there is none since.
        """
        port = self.ports.get(nic)
        return -1 if port is None else port.said_good_ns(from_ns)

    def read_to_ns(self, now_ns: int) -> int:
        """The time up to which this process has read what nodes say.

        That is a moment ago. Where this process or the bus stood still, it is before that, and what nodes said since
        waits to be read: none of them is silent.
        """
        newest_ns = self.reports.newest_ns
        return min(newest_ns, now_ns) if now_ns - newest_ns <= _UNREAD_NS else now_ns

    # -- out: paths ---------------------------------------------------------------------------------------------------

    def is_reported(self, path: str, now_ns: int) -> bool:
        """Whether the path's receiver reports."""
        return self.reports.is_reporting(node_of(parse_path(path).destination), now_ns)

    def is_unheard(self, path: str) -> bool:
        """Whether the path's receiver says that it has heard nothing for longer than a healthy path is quiet."""
        return self.reports.unheard_ns(path) > _UNHEARD_NS

    def is_heard(self, path: str, now_ns: int) -> bool:
        """Whether the path was heard a moment ago."""
        return now_ns - self.reports.heard_ns(path) <= self._within_ns

    def hold_ns(self, who: str) -> int:
        """How long a NIC or path has to be good before it is used again, by how often it was lost."""
        track = self.tracks.get(who)
        return self._hold.after(0 if track is None else track.strikes)

    def hearing(self, path: str, now_ns: int) -> LastHeard:
        """The latest word of the path's receiver on it."""
        if self.is_heard(path, now_ns):
            return LastHeard.HEALTHY
        ends = parse_path(path)
        sender, receiver = node_of(ends.source), node_of(ends.destination)
        # The last words of a node that speaks no more say nothing of now.
        told = self.reports.reported_ns(receiver) - self.reports.heard_ns(path) > _UNHEARD_NS
        judged = told and self.reports.is_reporting(receiver, now_ns) and not {sender, receiver} & self.dead
        return LastHeard.UNHEARD if judged else LastHeard.UNKNOWN

    def confirms(self, incident: Incident, now_ns: int) -> bool:
        """Whether a recent observation says the same as an event of long ago."""
        if incident.is_nic:
            port = self.ports.get(incident.who)
            return port is not None and not port.good and port.is_recent(now_ns)
        path, reports = incident.who, self.reports
        unheard = reports.heard_ns(path) <= incident.since_ns + _TRANSIT_NS
        silent = unheard or reports.has_fallen(path) or self.is_unheard(path)
        return silent and self.is_reported(path, now_ns)

    # -- what there is ------------------------------------------------------------------------------------------------

    def leave(self, node: str) -> None:
        """Forgets the reports of a node that has left the fleet.

        It may come back, so what befell its NICs is kept (`forget`).
        """
        self.reports.forget(node)
        self.dead.discard(node)
        self.ports.forget(node)

    def forget(self, nic: str) -> None:
        """Forgets a NIC that has left the fleet for good."""
        self.tracks.forget(nic)
        for path in [*self.troubled.of(nic)]:
            self.troubled.discard(path)

    def forget_paths(self, paths: list[str]) -> None:
        """Forgets paths that left the fleet, or that a batch may number differently now."""
        self.reports.forget_paths(paths)
        for path in paths:
            # The word that it fell silent is gone, so nobody would take it back.
            if self.state(path) is State.SUSPECT:
                self.feed(path, Input.SPEAKS_AGAIN, self.since_ns(path))
