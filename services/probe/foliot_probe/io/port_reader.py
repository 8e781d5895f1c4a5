"""Reads ports: a NIC's link at each change, its counters every second. Each message repeats the last changes.

The bus may be away, and a reader may find it again at any time later. Counters alone would say how often a carrier was
lost, but not when. And each loss has a name, under which this node's agent has told what it did.
"""

from __future__ import annotations

import collections
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import structlog

from foliot import tracing
from foliot_probe.io.rdma_counters import LinkDowned
from foliot_schemas import PortChange, PortState
from foliot_schemas.fault import port_fault
from foliot_schemas.observation import MOST_CHANGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from foliot.clock import Clock
    from foliot.node.rtnetlink import LinkChange
    from foliot_schemas import Node

log = structlog.get_logger()

_DEVICES = Path("/proc/thread-self/net/dev")
"""The counters of this network namespace. Every process can read them, whatever is mounted on /sys."""

# Columns of net/core/net-procfs.c:dev_seq_printf_stats, by the names of struct rtnl_link_stats64.
_COLUMNS = (
    "rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "rx_fifo_errors", "rx_frame_errors", "rx_compressed", "multicast",
    "tx_bytes", "tx_packets", "tx_errors", "tx_dropped", "tx_fifo_errors", "collisions", "tx_carrier_errors", "tx_compressed",
)  # fmt: skip

Turn = Literal["", "changed", "lost", "returned"]


def turn(before: LinkChange | None, now: LinkChange) -> Turn:
    """The kind of change that a link message brings, compared with the last one; empty: nothing of interest."""
    if before is None:
        return "" if now.carrier else "changed"
    if msgspec.structs.replace(before, mtu=now.mtu) == now:
        return ""
    if now.index != before.index:
        return "changed"  # another device of the same name, whose counts began at 0
    if now.carrier_down_count > before.carrier_down_count or (before.carrier and not now.carrier):
        # The count finds a loss that was over before its message was read.
        return "lost"
    return "returned" if now.carrier and not before.carrier else "changed"


def parse_counters(text: str) -> dict[str, dict[str, int]]:
    """Counters per device, from the text of ``/proc/net/dev``; lines of another form are left out."""
    devices = {}
    for line in text.splitlines():
        name, colon, values = line.rpartition(":")
        numbers = values.split()
        if colon and len(numbers) == len(_COLUMNS):
            devices[name.strip()] = dict(zip(_COLUMNS, map(int, numbers), strict=True))
    return devices


class PortReader:
    """The ports of a node's NICs.

    Parameters:
        boot: identity of the host's present boot.
        tell: publishes a state; it is called within the fault's span where there is a fault.
    """

    def __init__(self, own: Node, clock: Clock, boot: str, tell: Callable[[PortState], None]) -> None:
        self._node = own.name
        self._nics = {nic.device: nic.name for nic in own.nics}
        self._clock = clock
        self._boot = boot
        self._tell = tell
        self._link_downed = LinkDowned()
        self._links: dict[str, LinkChange] = {}
        self._changes: dict[str, collections.deque[PortChange]] = {
            nic: collections.deque(maxlen=MOST_CHANGES) for nic in self._nics.values()
        }
        self.management: frozenset[str] = frozenset()
        """Devices that are the host's management, see `foliot_probe.io.management_nics`."""

    def begin(self, links: Iterable[LinkChange]) -> None:
        """Take the links as they are found at the start; a message that came meanwhile is newer."""
        for link in links:
            if link.name not in self._links:
                self.changed(link)

    def changed(self, link: LinkChange) -> None:
        """Take a link message of the kernel."""
        nic = self._nics.get(link.name)
        if nic is None:
            return
        at_ns = self._clock.now_ns()
        what = turn(self._links.get(link.name), link)
        self._links[link.name] = link
        if not what:
            return
        state = self._state(link, nic, at_ns)
        self._changes[nic].append(PortChange(**{name: getattr(state, name) for name in PortChange.__struct_fields__}))
        if what == "changed":
            self._tell(state)
        else:
            fault = port_fault(self._boot, nic, link.carrier_down_count, link.index)
            with tracing.span(
                f"link {what}", fault=fault, root=what == "lost", kind="producer", start_ns=at_ns, nic=nic,
                carrier=link.carrier, admin_up=link.admin_up, carrier_down_count=link.carrier_down_count,
            ):  # fmt: skip
                self._tell(state)
        log.info("port_changed", nic=nic, carrier=link.carrier, admin_up=link.admin_up, what=what)

    def tell_counters(self) -> None:
        """Tell the present state of every port that is there, with its counters."""
        counters = parse_counters(_DEVICES.read_text())
        at_ns = self._clock.now_ns()
        for device, nic in self._nics.items():
            link = self._links.get(device)
            if link is not None and not link.gone:
                counted = counters.get(device, {}) | self._link_downed.read(device, link.index)
                self._tell(self._state(link, nic, at_ns, counted))

    def _state(self, link: LinkChange, nic: str, at_ns: int, counters: dict[str, int] | None = None) -> PortState:
        return PortState(
            node=self._node,
            nic=nic,
            at_ns=at_ns,
            carrier=link.carrier and not link.gone,
            admin_up=link.admin_up and not link.gone,
            carrier_down_count=link.carrier_down_count,
            carrier_up_count=link.carrier_up_count,
            index=link.index,
            management=link.name in self.management,
            fault=self._boot,
            change=counters is None,
            counters=counters or {},
            changes=tuple(self._changes[nic]),
        )
