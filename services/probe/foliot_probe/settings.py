"""``[probe]``: the rates of probing, and the times after which silence is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec

from foliot.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

Rate = Annotated[float, msgspec.Meta(ge=0.1, le=100.0)]
"""Probes or coded pairs a second.

A stream that sends pairs at the highest rate still remembers the last 0.64 s (`sessions.DEPTH`).
"""
Dscp = Annotated[int, msgspec.Meta(ge=0, le=63)]
"""A Differentiated Services codepoint (RFC 2474), by which switches choose a packet's queue."""
_OTHERS = "*"
_ECN_BITS = 2  # RFC 3168


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[probe]`` of the settings; the bench `probe-cost` measures what they cost."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {
            "mesh_neighbours", "mesh_streams", "coded_every", "silence_intervals", "silence_grace_ms", "stall_ms", "tolerated",
        }
    )  # fmt: skip

    in_use_hz: Rate = 25.0
    """Probes a second on paths in use and their backups.

    Three missing probes take 120 ms, which leaves half of 250 ms for the move.
    """
    sweep_hz: Rate = 5.0
    """Probes a second on all other paths.

    At a lower rate, it would be known too late which of them are healthy enough to move traffic to.
    """
    mesh_least_hz: Rate = 3.125
    """Coded pairs a second on each stream of the mesh in a quiet network. In simulations errors are twice those at 25.
    With half as many, the next layer of points is missing."""
    mesh_most_hz: Rate = 25.0
    """The highest rate of coded pairs, for a loaded network and until a clock has settled. Where one probe in a hundred
    meets no queue, a window of 50 pairs still holds one or two."""
    accuracy_ns: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    """How far apart the least delays of a window may lie. Stamps repeat only so well, as sync has measured them, and
    below that more probes tell no more. A value below that, such as 0, stands for it."""
    tick_ms: Annotated[int, msgspec.Meta(ge=5, le=100)] = 40
    """The time between two ticks. In each tick the probe reads its sockets and sends its probes in batches; rates are
    rounded to whole ticks. The kernel's stamps say when each packet really came. So a coarse tick blurs nothing; it
    only costs less."""
    realtime: bool = True
    """Whether the thread that sends and reads asks for real-time priority (SCHED_FIFO 1), where its packet loop is
    compiled. The kernel grants it to root and by ``RLIMIT_RTPRIO``. So busy processors do not make probes late. It takes
    some hundredths of one, and gives the priority back if it ever takes a quarter."""
    full_every: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 4
    """In every so many rounds, a path's probe is padded to full size. So a link is found that passes only smaller
    packets. A path in use has six padded probes a second: 75 kb/s at an MTU of 1,500. Other paths have one: 15 kb/s. 0:
    never."""
    classes: dict[str, Dscp] = {}
    """DSCP of the probes on each rail: that of the traffic whose queues are to be measured, such as ``rail0 = 26``.
    ``"*"`` stands for all rails that are not named; without it, these have 0. The same on every node."""
    delay_interval_ms: Annotated[int, msgspec.Meta(ge=20, le=10_000)] = 100
    """How often delays and counts are published."""
    flow_interval_ms: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 500
    """How often the traffic between service addresses is published, as the kernel counts it; 0: never."""
    nic_flows: bool = True
    """Whether that between the NICs' own addresses is published with it. Without it, the kernel hands over fewer
    connections, which matters where a host has thousands of these. Then no traffic is found that goes past Foliot."""
    in_band: bool = False
    """Whether the delay of the traffic's own packets is published with it, by the stamps of TCP. It needs CAP_NET_RAW,
    `agent.tcp_usec_ts`, and ``net.ipv4.tcp_timestamps = 2``, all at both ends."""
    trace_hz: Annotated[float, msgspec.Meta(ge=0.0, le=10_000.0)] = 100.0
    """Packets a second by which the node asks for the routers of its paths, whose time to live ends there; 0: none. A
    path with three routers takes nine at first, and four a minute later on."""
    one_of_equals: bool = False
    """Whether one path alone is probed of those between two NICs that take the same links, as far as routers say so
    beyond doubt, but for paths in use. The others have a probe each half minute."""
    nic_stamps: Literal["auto", "off"] = "off"
    """Whether NICs that can stamp packets do so for the clocks, each by a clock of its own: ``auto``, where one does it
    well. It needs `agent.nic_stamps`, or somebody else who turned the NIC's stamps on. Read docs/clock.md first."""
    window_s: Annotated[float, msgspec.Meta(ge=0.2, le=60.0)] = 2.0
    """How often stamps are published: the window of Huygens (NSDI '18)."""
    chrony_shm: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    """Unit of chrony's ``refclock SHM`` that gets the reference time, once a second; left out: none.

    Read docs/clock.md first.
    """

    def ds_field(self, rail: str) -> int:
        """The byte of the IP header that tells switches the class of what the probe sends on a rail: its DSCP, no ECN."""
        return self.classes.get(rail, self.classes.get(_OTHERS, 0)) << _ECN_BITS

    def check_rails(self, rails: Iterable[str]) -> None:
        """Holds `classes` against the rails that the node has.

        Raises:
            SettingsError: it names another.
        """
        known = (*rails, _OTHERS)
        for rail in self.classes:
            if rail not in known:
                there = ", ".join(f'"{each}"' for each in known)
                raise SettingsError(f'probe.classes: "{rail}" is no rail of this node; there are {there}')
