"""Tries in a network namespace of its own, with the agent's code, all that the agent needs of this kernel.

``python -m foliot_agent.install.kernel_trial`` prints what failed as JSON. Those who are not root have to enter a user
namespace, which a process cannot leave again. So this is a process of its own. It never touches the host's own devices,
tables and rules.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import functools
import json
import os
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from pyroute2 import AsyncIPRoute
from pyroute2.netlink.exceptions import NetlinkError

from foliot.node.addressing import describe
from foliot.settings import NicSettings, NodeSettings
from foliot_agent.actuators.base import ActuatorError
from foliot_agent.actuators.overlay import OverlayActuator
from foliot_agent.core.overlay_layout import Layout
from foliot_agent.kernel.overlay_devices import Overlay, OverlayError, remove
from foliot_agent.kernel.route_socket import RouteSocket
from foliot_schemas import Placement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_LOOPBACK = 1
"""Its index in every namespace."""
_UP_S = 30.0
NOT_PERMITTED = "not permitted"
TRIAL = "trial"
"""The trial came to no end, and so shows nothing."""
NEXTHOPS = "nexthop objects"
"""The only thing tried that the agent can do without today: it moves a rail by a rule."""
# linux/rtnetlink.h, linux/nexthop.h
_NEW_NEXTHOP, _NHA_ID, _NHA_BLACKHOLE = 104, 1, 4
_REQUEST, _ACK, _CREATE = 1, 4, 0x400


def run_trial() -> dict[str, str]:
    """The failed trials by name, with the kernel's reason; empty: everything works.

    `NOT_PERMITTED` as the only name: nothing could be tried.
    """
    # A user namespace can only be entered by a process with one thread, and numpy's OpenBLAS starts several.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "foliot_agent.install.kernel_trial"],
            capture_output=True, text=True, timeout=_UP_S, check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {TRIAL: f"did not end within {_UP_S:.0f} s"}
    if done.returncode:
        return {TRIAL: done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"}
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _enter() -> None:
    """Enters a new network namespace, within a new user namespace if need be.

    Raises:
        OSError: neither is permitted.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NET) and libc.unshare(_NEW_USER | _NEW_NET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _node(index: int) -> NodeSettings:
    return NodeSettings(
        name=f"trial{index}",
        index=index,
        nics=tuple(
            NicSettings(rail=f"rail{rail}", number=rail, device=f"nic{rail}", address=f"192.0.2.{rail * 2 + index + 1}")
            for rail in (0, 1)
        ),
        entropies=(49_200, 49_201),
    )


async def _try() -> dict[str, str]:
    failed: dict[str, str] = {}

    async def step(name: str, attempt: Callable[[], Awaitable[Any]]) -> None:
        try:
            await attempt()
        except (NetlinkError, OverlayError, ActuatorError, OSError) as error:
            failed[name] = str(error)

    layout, peer = Layout.of(_node(0)), describe(_node(1))
    async with AsyncIPRoute() as netlink, RouteSocket() as kernel:
        await netlink.link("set", index=_LOOPBACK, state="up")
        for nic in ("nic0", "nic1"):
            veth = functools.partial(netlink.link, "add", ifname=nic, kind="veth", peer={"ifname": f"{nic}-far"})
            await step("veth", veth)
        overlay, actuator = Overlay(netlink, layout), OverlayActuator(netlink, kernel, layout)
        backup = Placement(peer=peer.name, rail="rail0", via="rail1", entropy=1)
        await step("VXLAN overlay", overlay.build)
        await step("rules", actuator.adopt)
        await step("forwarding entries", lambda: overlay.join(peer))
        await step("routes in tables of our own", lambda: actuator.welcome(peer))
        await step("armed backups", lambda: actuator.arm(backup))
        await step("moving a rail by one rule", lambda: actuator.away("rail0"))
        await step(NEXTHOPS, _make_nexthop)
        await step("taking it all away again", lambda: remove(netlink))
    return failed


async def _make_nexthop() -> None:
    """By hand: pyroute2 0.9 has no nexthop objects."""
    body = struct.pack("=BBBBIHHIHH", socket.AF_INET, 0, 0, 0, 0, 8, _NHA_ID, 7_000, 4, _NHA_BLACKHOLE)
    header = struct.pack("=IHHII", 16 + len(body), _NEW_NEXTHOP, _REQUEST | _ACK | _CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        asked.send(header + body)
        (code,) = struct.unpack_from("=i", asked.recv(4096), 16)
    if code:
        raise OSError(-code, os.strerror(-code))


def main() -> None:
    """Prints what failed."""
    try:
        _enter()
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOSPC, errno.EINVAL}:
            raise
        sys.stdout.write(json.dumps({NOT_PERMITTED: error.strerror}))
        return
    sys.stdout.write(json.dumps(asyncio.run(_try())))


if __name__ == "__main__":
    main()
