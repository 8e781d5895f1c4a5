"""In-band delays: how long the traffic's own packets take, by the stamps of TCP."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import structlog

from foliot_probe.core.measure.ack_delays import AckDelays
from foliot_probe.io.ack_headers import AckHeaders
from foliot_probe.io.tcp_clock import MonotonicOffset, TcpClock

if TYPE_CHECKING:
    from foliot.clock import HostClock
    from foliot_probe.core.measure.ack_delays import Ends
    from foliot_schemas import ClockState, Node

log = structlog.get_logger()

_BELIEVED = frozenset({"synchronised", "holdover"})


class InBandMeter:
    """The delays of the traffic between service addresses, as far as the host and its peers help.

    Where one does not, nothing is known of their traffic, and nothing else suffers.

    Parameters:
        own: this node.
        clock: its clock.
        tcp_clock: the clock of its TCP.
    """

    def __init__(self, own: Node, clock: HostClock, tcp_clock: TcpClock | None = None) -> None:
        self._clock = clock
        self._tcp_clock = tcp_clock or TcpClock(clock)
        self._delays = AckDelays()
        self._clock_of: dict[int, str] = {}
        """By a peer's service address, the clock of its host."""
        self._states: dict[str, ClockState] = {}
        self._headers: AckHeaders | None = None
        try:
            self._headers = AckHeaders([nic.service_address for nic in own.nics])
        except OSError as error:
            hint = "probe.in_band needs CAP_NET_RAW; round trips of TCP serve instead"
            log.warning("in_band_unknown", reason=error.strerror, hint=hint)
        if not self._tcp_clock.is_bare():
            hint = "set net.ipv4.tcp_timestamps = 2; round trips of TCP serve instead"
            log.warning("in_band_unknown", reason="TCP adds a number of its own to the stamps", hint=hint)

    def set_peer(self, name: str, node: Node | None) -> None:
        """Learns the addresses of a peer; None: it is gone."""
        self._clock_of = {address: clock for address, clock in self._clock_of.items() if clock != name}
        if node is not None:
            # CLOCK_MONOTONIC is the host's, whose clock has the node's name.
            self._clock_of |= {int(IPv4Address(nic.service_address)): name for nic in node.nics}

    def set_clock(self, state: ClockState) -> None:
        """Takes what sync says of a clock."""
        self._states[state.clock] = state

    def read(self) -> None:
        """Takes the acknowledgements that have come."""
        if self._headers is None:
            return
        acks = self._headers.read()
        now, own = self._tcp_clock.reading(), self._clock.state
        if len(acks) and own is not None and self._clock.bound_ns() >= 0 and self._tcp_clock.is_bare():
            self._delays.add(acks, now.monotonic_ns, self._others_ns(own.reference_ns(now.local_ns)))

    def take(self) -> dict[Ends, int]:
        """The median delay to each other end since the last call, in ns."""
        return self._delays.take()

    def offset(self) -> MonotonicOffset:
        """What peers need to read this host's stamps."""
        return self._tcp_clock.offset()

    def close(self) -> None:
        """Reads no more."""
        if self._headers is not None:
            self._headers.close()

    def _others_ns(self, reference_ns: int) -> dict[int, int]:
        """CLOCK_MONOTONIC of each peer at a reference time, by its service addresses, where it is known."""
        told = {
            name: state.monotonic_at_ns(reference_ns)
            for name, state in self._states.items()
            if state.monotonic_ns and state.status in _BELIEVED
        }
        return {address: told[clock] for address, clock in self._clock_of.items() if clock in told}
