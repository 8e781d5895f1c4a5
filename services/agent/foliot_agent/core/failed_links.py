"""The NICs that are known to be lost, a node's own and its peers', and the policy of acting alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from foliot_schemas.fault import port_fault
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from foliot.node.rtnetlink import LinkChange
    from foliot_agent.core.overlay_layout import Layout
    from foliot_agent.settings import Armed, Policy
    from foliot_schemas.notice import Notice

_COUNTS = 1 << 32
"""The kernel's counts of a carrier have 32 bits and wrap. Of two, the later is the one that is less than half of
that ahead."""


def acts_on_own(armed: Armed, policy: Policy, *, bus_connected: bool) -> bool:
    """Whether the node moves its traffic at the loss of an own NIC without being told to."""
    return policy == "act" and (armed == "always" or (armed == "bus-away" and not bus_connected))


def acts_on_notice(armed: Armed, policy: Policy) -> bool:
    """Whether the node believes a peer that says it lost a NIC.

    The peer's bus may be away where one's own is not, so being armed at all is enough: moved means both directions.
    """
    return policy == "act" and armed != "off"


class LinkTransition(msgspec.Struct, frozen=True, kw_only=True):
    """The loss or the return of an own NIC."""

    rail: str
    state: Literal["lost", "back"]
    fault: str
    """The same for a loss and the return from it."""


class FailedLinks:
    """The lost NICs: own ones by the kernel's word, peers' by theirs.

    Parameters:
        boot: identity of the present boot, part of the names of faults.
    """

    def __init__(self, layout: Layout, boot: str) -> None:
        self._node = layout.node.name
        self._rails = {nic.device: nic.rail for nic in layout.node.nics}
        self._boot = boot
        self._told: dict[str, LinkChange] = {}
        self._own: dict[str, str] = {}
        self._peers: dict[tuple[str, str], int] = {}

    @property
    def own(self) -> frozenset[str]:
        """Rails whose own NIC is lost."""
        return frozenset(self._own)

    def lasting(self) -> tuple[LinkTransition, ...]:
        """The losses of own NICs that last, as they were told."""
        return tuple(LinkTransition(rail=rail, state="lost", fault=fault) for rail, fault in self._own.items())

    def dead(self, peer: str, via: str) -> bool:
        """Whether the way to a peer via a rail has lost a NIC at either end."""
        return via in self._own or (peer, via) in self._peers

    def told_ns(self, peer: str, via: str) -> int | None:
        """When the peer said that it lost its NIC on the rail; None if it did not, or took it back."""
        return self._peers.get((peer, via))

    def take_link(self, change: LinkChange) -> LinkTransition | None:
        """Takes a link message.

        Returns what turned by it, if it is a backend NIC's and anything did. A message that is older than the last one
        says nothing.
        """
        rail = self._rails.get(change.name)
        if rail is None or _is_older(change, self._told.get(rail)):
            return None
        self._told[rail] = change
        lost = change.gone or not change.carrier
        if lost == (rail in self._own):
            return None
        if not lost:
            return LinkTransition(rail=rail, state="back", fault=self._own.pop(rail))
        # The kernel counts a loss before it tells of it, so the count in the message names this loss.
        nic = nic_name(self._node, rail)
        self._own[rail] = port_fault(self._boot, nic, change.carrier_down_count, change.index)
        return LinkTransition(rail=rail, state="lost", fault=self._own[rail])

    def take_notice(self, notice: Notice) -> None:
        """Takes a peer's word."""
        if notice.state == "lost":
            self._peers[notice.node, notice.rail] = notice.at_ns
        else:
            self._peers.pop((notice.node, notice.rail), None)

    def forget(self, peer: str) -> None:
        """Forgets a peer that has left the fleet."""
        for place in [place for place in self._peers if place[0] == peer]:
            del self._peers[place]

    def overrule(self, peer: str, via: str) -> None:
        """Drops a peer's last word, as somebody who knows more uses the way again."""
        self._peers.pop((peer, via), None)


def _is_older(change: LinkChange, last: LinkChange | None) -> bool:
    """Whether a link message is of before the last one about the same NIC.

    Of one device, the kernel's counts tell: they only rise. A device that is made anew counts from 0 under another
    index. So no message is older than a device's end. An end that comes after another device has taken the name ends
    nothing.
    """
    if last is None or last.gone:
        return False
    if change.index != last.index:
        return change.gone
    return any(
        (new - old) % _COUNTS >= _COUNTS // 2
        for new, old in (
            (change.carrier_down_count, last.carrier_down_count),
            (change.carrier_up_count, last.carrier_up_count),
        )
    )
