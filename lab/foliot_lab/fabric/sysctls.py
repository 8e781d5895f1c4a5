"""The kernel settings that make a namespace a host or a router, and make every run alike."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERYWHERE = {
    # No router solicitations and no duplicate address detection: only deliberate packets travel.
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    # Replies come by another rail after a move.
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
}
HOST = {
    # A connection's slow start shall not depend on the ones before it.
    "net/ipv4/tcp_no_metrics_save": "1",
    # Stamps are of the clock alone, so that settings of the services suffice to read delays of the traffic one way.
    "net/ipv4/tcp_timestamps": "2",
}
ROUTER = {
    "net/ipv4/ip_forward": "1",
    # Policy 1 takes the hash that a local TCP socket left in the packet, which is random per connection; 3 computes it.
    "net/ipv4/fib_multipath_hash_policy": "3",
    # Source, destination, protocol, source port, destination port.
    "net/ipv4/fib_multipath_hash_fields": str(0x0037),
    # A cut uplink stays in the hash, or every other path would be dealt anew with it.
    "net/ipv4/conf/all/ignore_routes_with_linkdown": "0",
    # Traces that follow a probe hop by hop get an answer from every hop: no type of error is limited, to a peer or in all.
    "net/ipv4/icmp_ratemask": "0",
    # The answer to a packet whose time is over has the address of the port by which it came, as that of most switches.
    "net/ipv4/icmp_errors_use_inbound_ifaddr": "1",
}
SILENT = {
    # The answer to a packet whose time is over is an error of ICMP's type 11. A peer may be sent one in so many ms, and
    # begins with a minute's worth of that (inet_getpeer in net/ipv4/inetpeer.c).
    "net/ipv4/icmp_ratemask": str(1 << 11),
    "net/ipv4/icmp_ratelimit": "100000000",
}
"""A router that lets packets expire without a word."""
_OPTIONAL = {"net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/default/disable_ipv6"}
"""Settings that kernels without IPv6 lack and do not need."""

_REACHABLE_MS = 3_600_000
"""An hour, which is longer than a run. So no host asks for an address again on a full link, where the answer may be
lost."""

_PROC = Path("/proc/sys")


def set_sysctls(values: Mapping[str, str]) -> None:
    """Write settings of the calling thread's network namespace.

    Raises:
        OSError: this kernel lacks one or does not permit it.
    """
    for name, value in values.items():
        if name in _OPTIONAL and not (_PROC / name).exists():
            continue
        (_PROC / name).write_text(value)


def settle_neighbours(device: str) -> None:
    """Keep a device's neighbours, once resolved, for the whole run.

    Raises:
        OSError: there is no such device.
    """
    set_sysctls({f"net/ipv4/neigh/{device}/base_reachable_time_ms": str(_REACHABLE_MS)})


def pin_congestion_control() -> None:
    """Pin TCP's congestion control to the first that this kernel grants a namespace.

    The kernel's own default differs from machine to machine. bbr paces, which would hide the effects of a queue. A
    kernel grants a namespace only unrestricted ones: its own default and reno. A program that has CAP_NET_ADMIN may
    choose another for its own sockets.

    Raises:
        OSError: it grants none.
    """
    setting = _PROC / "net/ipv4/tcp_congestion_control"
    try:
        setting.write_text("cubic")
    except OSError:
        setting.write_text("reno")
