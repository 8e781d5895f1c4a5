"""The way that traffic takes when the present one is lost: the alternative, the detour, the backup to arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_remediator.core.state.homes import pair_number
from foliot_remediator.core.state.inventory import path_name
from foliot_remediator.core.state.path_health import LastHeard
from foliot_remediator.core.state.state_machine import State
from foliot_schemas import Placement
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from foliot_remediator.core.state.homes import Homes
    from foliot_remediator.core.state.incidents import Incident
    from foliot_remediator.core.state.inventory import Destination, Inventory
    from foliot_remediator.core.state.path_health import PathHealth

_TRUSTED = frozenset({State.UP})
_PROOF_NS = 80_000_000
"""A way heard this much after a silence began does not share its cause. A silence is dated back to the last probe
heard, an interval of 50 ms at most before the cut. A probe sent before the cut may have waited in a queue: 200
packets of 1,500 bytes at 200 Mb/s are 12 ms."""
_SEVERAL = 2
"""With so many of a NIC's paths in trouble, besides the one to be left, chance is unlikely to have hit the same NIC."""
_BETTER_THAN_NOTHING = frozenset({State.UP, State.PROBATION})
_NOT_LOST = frozenset(State) - {State.DOWN}


class PathSelector:
    """Chooses ways by what the fleet has and what its health is.

    Parameters:
        hears: whether the health of a node's paths is known here; by default that of all is.
    """

    def __init__(
        self, inventory: Inventory, health: PathHealth, homes: Homes, hears: Callable[[str], bool] | None = None
    ) -> None:
        self._inventory = inventory
        self._hears = hears
        self._health = health
        self.homes = homes
        """The ways when all is well."""

    def usable(self, node: str, way: Placement, now_ns: int, *, trusted: frozenset[State] = _TRUSTED) -> bool:
        """Whether both NICs and the path are trusted, and the path was heard a moment ago, where that is known."""
        is_heard = self._health.is_heard(path_name(node, way), now_ns) or not (self._hears is None or self._hears(node))
        return is_heard and self._alive(node, way, trusted)

    def is_lost(self, node: str, way: Placement) -> bool:
        """Whether one of its NICs or the path is down, or the fleet has it no more."""
        return not self._alive(node, way, _NOT_LOST)

    def is_proven(self, node: str, way: Placement, since_ns: int) -> bool:
        """Whether a way was heard since a trouble began, and so does not share its cause."""
        return self._health.reports.heard_ns(path_name(node, way)) > since_ns + _PROOF_NS

    def is_proven_nic(self, nic: str, since_ns: int) -> bool:
        """Whether a NIC's port was said to be good since a trouble began."""
        return self._health.said_good_ns(nic, since_ns) > _PROOF_NS

    def stands(self, node: str, way: Placement, now_ns: int) -> bool:
        """Whether nothing speaks against a way that was usable once.

        A lack of reports does not, as while the bus is away.
        """
        return (
            self._alive(node, way, _TRUSTED)
            and self._health.hearing(path_name(node, way), now_ns) is not LastHeard.UNHEARD
        )

    def alternative(
        self, destination: Destination, present: Placement, armed: Placement | None, now_ns: int
    ) -> Placement | None:
        """The way around a lost NIC of the present way: the armed one if usable, else the first usable one in turn.

        If there is none, one on probation is better than the dead one. So is one of which nobody can say anything,
        because the probe at its end is away. None: there is not even that.
        """
        node = destination.node
        for trusted in (_TRUSTED, _BETTER_THAN_NOTHING):
            for way in self._others(destination, present, armed):
                if self.usable(node, way, now_ns, trusted=trusted):
                    return way
        return next((way for way in self._others(destination, present, armed) if self.stands(node, way, now_ns)), None)

    def detour(
        self, destination: Destination, present: Placement, armed: Placement | None, incident: Incident, now_ns: int
    ) -> Placement | None:
        """The way around a silent or lossy path of the present way.

        First comes a way that was heard since the silence began, on the same rail if there is one: it does not share
        the fate. The others were healthy but have not been heard since; of them, one on another rail comes first.

        A way that is heard may still lose packets. So where the present path is lossy, a way whose NICs have several
        paths in trouble comes late. So does a way that was not heard for a while, until it has been for as long as the
        present path would be on probation: nobody missed a way that idled, so nobody has called it silent.
        """
        found, hold_ns = [], self._health.hold_ns(incident.who)
        for place, way in enumerate(self._others(destination, present, armed)):
            if self.usable(destination.node, way, now_ns):
                unproven = not self.is_proven(destination.node, way, incident.since_ns)
                siblings = self._troubled_siblings(destination.node, way, path_name(destination.node, present))
                doubtful = incident.lossy and siblings >= _SEVERAL
                resumed_ns = self._health.reports.resumed_ns(path_name(destination.node, way))
                untried = now_ns - resumed_ns < hold_ns
                rank = unproven, doubtful, untried, (way.via == present.via) == unproven, siblings, place
                found.append((rank, way))
        return min(found)[1] if found else None

    def spare(self, destination: Destination, present: Placement, now_ns: int) -> Placement | None:
        """The backup to arm: usable when the present way loses a NIC, so on another rail."""
        for way in self._candidates(destination, but=present.via):
            if self.usable(destination.node, way, now_ns):
                return way
        return None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _others(self, destination: Destination, present: Placement, armed: Placement | None) -> Iterator[Placement]:
        if armed is not None and armed != present:
            yield armed
        for way in self._candidates(destination):
            if way not in {present, armed}:
                yield way

    def _candidates(self, destination: Destination, but: str = "") -> Iterator[Placement]:
        """All ways, or those over all rails but one: the home, its rail's other entropies, then the other rails.

        The turn spreads destinations. It is the same for both directions of a pair, so that where all is healthy they
        take the same way.
        """
        node, peer, rail = destination
        home = self.homes.of(destination)
        if home.via != but:
            yield home
        rails = self._inventory.shared(node, peer)
        others = [other for other in rails if other != home.via]
        number = pair_number(node, peer, rail)
        first = number % len(others) if others else 0
        for via in (home.via, *others[first:], *others[:first]):
            if via == but:
                continue
            count = self._inventory.entropies(node, peer, via)
            for step in range(count):
                way = Placement(peer=peer, rail=rail, via=via, entropy=(number + step) % count)
                if way != home:
                    yield way

    def _alive(self, node: str, way: Placement, trusted: frozenset[State]) -> bool:
        if way.entropy >= self._inventory.entropies(node, way.peer, way.via):
            return False
        health = self._health
        nics = (nic_name(node, way.via), nic_name(way.peer, way.via))
        return all(health.nic_state(nic) in trusted for nic in nics) and (health.state(path_name(node, way)) in trusted)

    def _troubled_siblings(self, node: str, way: Placement, present: str) -> int:
        """Paths that share a NIC with the way and are in trouble, besides the one to be left."""
        own, other = (self._health.troubled.of(nic_name(end, way.via)) for end in (node, way.peer))
        return len({*own, *other} - {present})
