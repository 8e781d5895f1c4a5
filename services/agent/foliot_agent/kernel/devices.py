"""Network devices by name, and their settings under ``/proc/sys/net``."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any


class Devices:
    """The devices of the network namespace that the calling thread is in.

    Raises:
        OSError: there is no such device, or its setting may not be read or written.
    """

    def index(self, name: str) -> int:
        """The kernel's number of a device."""
        return socket.if_nametoindex(name)

    def has(self, name: str) -> bool:
        """Whether there is a device of this name."""
        try:
            self.index(name)
        except OSError:
            return False
        return True

    def setting(self, family: str, device: str, key: str) -> str | None:
        """A device's present setting; None: this kernel has none of this name."""
        path = path_of(family, device, key)
        return path.read_text().strip() if path.exists() else None

    def set(self, family: str, device: str, key: str, value: str) -> None:
        """Writes a device's setting."""
        path_of(family, device, key).write_text(value)


class NoKernel(Devices):
    """Stands for both an `AsyncIPRoute` and the devices where nothing may be touched: takes all, and needs no NIC.

    To see what the agent would tell a host's kernel, use `foliot_agent.kernel.dry_run`.
    """

    def index(self, name: str) -> int:  # noqa: ARG002 - as of `Devices`
        """See `Devices`; every device is there."""
        return 0

    async def route(self, verb: str, **what: Any) -> None:
        """As `AsyncIPRoute.route`."""

    async def rule(self, verb: str, **what: Any) -> None:
        """As `AsyncIPRoute.rule`."""


def path_of(family: str, device: str, key: str) -> Path:
    """The file of a device's setting."""
    return Path("/proc/sys/net") / family / "conf" / device / key
