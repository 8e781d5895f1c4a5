"""Judges the findings on the host and on the bus. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot import native
from foliot_agent.core import overlay_layout
from foliot_agent.install import kernel_trial
from foliot_agent.install.findings import note, ok, stop, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from foliot.bus.one_shot import Ahead
    from foliot.settings import NicSettings
    from foliot_agent.install.findings import Finding
    from foliot_agent.install.nics import NicState, RouteFound
    from foliot_agent.install.timekeeping import Discipline

_LEAST_MTU = 1_280 + overlay_layout.VXLAN_OVERHEAD
"""IPv6's least (RFC 8200) inside; smaller packets would cost more than they carry."""
_ETHERNET_MTU = 1_500
_KERNEL_LACKS = "load or build what the kernel lacks (CONFIG_VXLAN, IP_MULTIPLE_TABLES)"
_TRIAL_FAILED = "join again, or see why by `python -m foliot_agent.install.kernel_trial`"
_STRAY_NS = 1_000_000_000
"""Beyond a second of difference, logs and certificates stop making sense. Foliot itself needs no common wall time."""


def rail(name: str, device: str, states: Mapping[str, NicState]) -> Finding | None:
    """The reason why a rail cannot be on this device; None: it can."""
    state = states.get(device)
    if state is None:
        fitting = ", ".join(sorted(each.device for each in states.values() if each.addresses))
        return stop(
            name, f"there is no device {device!r} on this host", f"with an IPv4 address are {fitting or 'none'}"
        )
    if not state.addresses:
        down = "" if state.admin_up else ", and is set down"
        return stop(name, f"{device} has no IPv4 address{down}", "give it the one that it has in the fabric")
    return None


def nic(settings: NicSettings, state: NicState) -> tuple[Finding, ...]:
    """A backend NIC: link, address, MTU, timestamps."""
    about = settings.rail
    others = [address for address in state.addresses if address != settings.address]
    speed = f"{state.speed_mbps / 1_000:g} Gb/s" if state.speed_mbps else "speed not told"
    rdma = f", RDMA device {state.rdma}" if state.rdma else ""
    beside = f" (also has {', '.join(others)})" if others else ""
    found = [ok(about, f"{state.device} with {settings.address}{beside}, {speed}{rdma}")]
    if not state.admin_up:
        found.append(stop(about, f"{state.device} is set down", f"ip link set {state.device} up"))
    elif not state.carrier:
        found.append(warn(about, f"{state.device} has no carrier", "check its cable or the switch's port"))
    return (*found, _mtu(about, state), _stamps(about, state))


def _mtu(about: str, state: NicState) -> Finding:
    inner = state.mtu - overlay_layout.VXLAN_OVERHEAD
    if state.mtu < _LEAST_MTU:
        return stop(about, f"MTU {state.mtu} leaves {inner} inside of VXLAN", f"set at least {_LEAST_MTU}")
    if inner < _ETHERNET_MTU:
        said = f"MTU {state.mtu}: service addresses get {inner}, as VXLAN takes {overlay_layout.VXLAN_OVERHEAD}"
        more = _ETHERNET_MTU + overlay_layout.VXLAN_OVERHEAD
        return note(about, said, f"for packets of {_ETHERNET_MTU} set {more} or more on NICs and switches")
    return ok(about, f"MTU {state.mtu}: service addresses get {inner}")


def _stamps(about: str, state: NicState) -> Finding:
    stamping = state.stamping
    if stamping is None or not stamping.kernel:
        said = f"{state.device}'s driver promises no kernel timestamps"
        return warn(about, said, "the probe tries, and else takes them in user space, tens of microseconds worse")
    clock = "" if stamping.phc_index is None else f" (its clock is /dev/ptp{stamping.phc_index})"
    if stamping.hardware and stamping.phc_index is not None and stamping.transmits and stamping.receives:
        return ok(about, f"kernel timestamps; the NIC can stamp too{clock}: see nic_stamps of [probe] and [agent]")
    if stamping.hardware:
        return ok(about, f"kernel timestamps; the NIC stamps packets of PTP alone{clock}")
    return ok(about, f"kernel timestamps; the NIC cannot stamp{clock}")


def reach(rail: str, device: str, peer: str, route: RouteFound | None, hash_policy: str) -> Finding:
    """The route to one peer's NIC on a rail."""
    if route is None:
        return warn(rail, f"no route by {device} to {peer}", "add one, or the rail reaches nobody")
    if route.device != device:
        return warn(rail, f"{peer} is reached by {route.device}, not by {device}", "check the host's routes")
    if route.ways > 1 and hash_policy == "0":
        return warn(
            rail,
            f"{device} has {route.ways} next hops, chosen by addresses alone: all entropies take the same",
            "set net.ipv4.fib_multipath_hash_policy = 1, so that UDP ports count",
        )
    hops = "" if route.ways == 1 else f", over {route.ways} next hops, chosen by UDP ports too"
    return ok(rail, f"{peer} is reached by {device}{hops}")


def kernel(failed: Mapping[str, str]) -> tuple[Finding, ...]:
    """Judges the result of `foliot_agent.install.kernel_trial`."""
    about = "kernel"
    if kernel_trial.NOT_PERMITTED in failed:
        return (warn(about, "VXLAN, tables and rules could not be tried without privilege", "run as root to know"),)
    if not failed:
        return (ok(about, "VXLAN, tables, rules and nexthop objects work (tried in a namespace of its own)"),)
    return tuple(
        note(about, f"{what}: {reason}; the agent does without")
        if what == kernel_trial.NEXTHOPS
        else stop(about, f"{what}: {reason}", _TRIAL_FAILED if what == kernel_trial.TRIAL else _KERNEL_LACKS)
        for what, reason in failed.items()
    )


def rdma(devices: Mapping[str, str], rails: Iterable[str]) -> Finding:
    """RDMA devices by network device."""
    if not devices:
        return note("rdma", "no RDMA devices: queue pairs cannot be moved, and need not be")
    used = [f"{name} ({net})" for net, name in devices.items() if net in set(rails)]
    said = f"{len(devices)} RDMA devices, of which on rails: {', '.join(used) or 'none'}"
    return note("rdma", f"{said}; their queue pairs go past the overlay and are not moved")


def clock(discipline: Discipline | None) -> Finding:
    """Judges the discipline of CLOCK_REALTIME. Foliot only reads it, whoever disciplines it."""
    if discipline is None:
        return note("clock", "the kernel does not say how it keeps the time")
    by = " and ".join(discipline.keepers)
    if len(discipline.keepers) > 1 and set(discipline.keepers) != {"phc2sys", "ptp4l"}:
        return warn("clock", f"{by} run both: they may pull at one clock", "leave one")
    if not discipline.synchronised:
        whom = f"{by} runs, but the kernel counts as unsynchronised" if by else "nobody keeps the system clock"
        return note("clock", whom, "Foliot does not need it to be kept; logs are easier to compare if it is")
    error_ms = discipline.greatest_error_us / 1_000
    return ok(
        "clock", f"kept by {by or 'a program unknown'}, {discipline.frequency_ppm:+.1f} ppm, within {error_ms:.1f} ms"
    )


def native_code(why_python: str) -> Finding:
    """Whether the probe's inner loops are compiled, or why not."""
    if not why_python:
        return ok("code", "the probe's inner loops are compiled")
    to_do = "install by `make node` where there is a C compiler, or install foliot-native as a wheel"
    if why_python == native.OFF:
        to_do = "leave the variable out"
    said = f"the probe's inner loops run in Python, and take more of the processor, as {why_python}"
    return note("code", said, to_do)


def bus(version: str, *, jetstream: bool, ahead: Ahead | None, nodes: int) -> tuple[Finding, ...]:
    """The bus, which has answered."""
    if not jetstream:
        return (stop("bus", f"NATS {version} without JetStream", "start it with --jetstream"),)
    found = [ok("bus", f"NATS {version} with JetStream, {nodes} nodes in the inventory")]
    if ahead is not None and abs(ahead.by_ns) - ahead.bound_ns > _STRAY_NS:
        seconds = ahead.by_ns / 1e9
        said = f"this host's clock is {abs(seconds):.1f} s {'behind' if seconds > 0 else 'ahead of'} the bus's"
        found.append(warn("bus", said, "Foliot measures none the less; certificates and logs may not agree"))
    return tuple(found)
