"""Says when what is on probation may be used again: after its hold, undamped, and heard to be good."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from foliot_remediator.core.scheduling import DueQueue
from foliot_remediator.core.state.inventory import Destination, is_nic
from foliot_remediator.core.state.path_health import LastHeard
from foliot_remediator.core.state.state_machine import Input, State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_schemas import Event

_GOOD_SHARE = 0.5
"""Share that must be heard of a NIC's paths that can be judged."""
_RECHECK_NS, _LONGEST_RECHECK_NS = 100_000_000, 5_000_000_000
"""Shortest and longest wait until a NIC or path that was not heard is looked at again. Nodes report every 100 ms.
The wait is an eighth of the time since its hold ended. Where thousands wait for nodes that are away, looking at all
of them ten times a second takes a processor."""
_LONGEST_REST_NS = 60_000_000_000
"""Longest wait before something that is held is looked at all the same: it may have left the fleet."""
_LONGEST_DAMPING_NS = 86_400_000_000_000
"""A day: far more than any rule holds what flaps (RFC 2439: an hour), so that a wrong event cannot bar a NIC for
ever."""


class Probation:
    """Watches NICs and paths on probation."""

    def __init__(self, view: FleetView) -> None:
        self._inventory, self._health, self._homes = view.inventory, view.health, view.selector.homes
        self._watched = DueQueue()
        self._reuse_at_ns: dict[str, int] = {}

    def damp(self, event: Event, at_ns: int) -> None:
        """Keeps a NIC that flaps from use for as long as its event says (RFC 2439; until 0: it may be used).

        Parameters:
            at_ns: when the event was, by this process's time. The event itself has times of the NIC's node.
        """
        until_ns = int(event.number("reuse_at_ns"))
        hold_ns = min(until_ns - event.at_ns, _LONGEST_DAMPING_NS) if until_ns else 0
        self._reuse_at_ns[event.who] = at_ns + hold_ns

    def watch(self, who: str, now_ns: int) -> None:
        """Watches a NIC or path that is on probation."""
        self._watched.put(who, now_ns)

    def forget(self, nic: str) -> None:
        """Forgets a NIC that has left the fleet for good. Its paths on probation are let go when their turn comes."""
        self._reuse_at_ns.pop(nic, None)

    def recovered(self, now_ns: int) -> list[str]:
        """The NICs and paths that are up from now on."""
        found = []
        for who in self._watched.take(now_ns):
            track = self._health.tracks.get(who)
            if track is None or track.state is not State.PROBATION:
                continue
            ready_ns = max(track.due_ns, self._reuse_at_ns.get(who, 0))
            is_good = self._is_good_nic if is_nic(who) else self._is_good_path
            if ready_ns <= now_ns and self._is_known(who) and is_good(who, now_ns):
                self._health.feed(who, Input.TIMER, now_ns)
                found.append(who)
            else:
                rest_ns = min(max((now_ns - ready_ns) // 8, _RECHECK_NS), _LONGEST_RECHECK_NS)
                look_ns = min(max(ready_ns, now_ns + rest_ns), now_ns + _LONGEST_REST_NS)
                self._watched.put(who, look_ns)
        return found

    def _is_known(self, who: str) -> bool:
        return who in self._inventory.nics or self._inventory.path(who) is not None

    def _is_good_path(self, path: str, now_ns: int) -> bool:
        return self._health.hearing(path, now_ns) is LastHeard.HEALTHY

    def _is_good_nic(self, nic: str, now_ns: int) -> bool:
        """Whether enough of its paths at home are heard, both ways, of those that can be judged at all.

        A peer whose own NIC is down says nothing of this one. If all such peers are down, nobody can be asked and
        nothing stands against it. If nobody answers, that is a doubt.
        """
        paths = collections.Counter(self._health.hearing(path, now_ns) for path in self._paths_of(nic))
        judged = paths[LastHeard.HEALTHY] + paths[LastHeard.UNHEARD]
        return paths[LastHeard.HEALTHY] >= _GOOD_SHARE * judged if judged else not paths[LastHeard.UNKNOWN]

    def _paths_of(self, nic: str) -> Iterator[str]:
        owner, rail = self._inventory.nics[nic]
        for peer in self._inventory.peers(owner, rail):
            if not (self._inventory.owns(owner) or self._inventory.owns(peer)):
                continue  # told to another shard
            other = f"{peer}.{rail}"
            if self._health.nic_state(other) is not State.DOWN:
                # Each direction at its own home: of other paths, nobody may send on these.
                yield f"{nic}>{other}#{self._entropy(Destination(owner, peer, rail))}"
                yield f"{other}>{nic}#{self._entropy(Destination(peer, owner, rail))}"

    def _entropy(self, destination: Destination) -> int:
        home = self._homes.of(destination)
        return home.entropy if home.via == destination.rail else 0
