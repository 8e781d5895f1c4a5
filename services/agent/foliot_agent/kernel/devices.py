"""Network devices by name, and their settings under ``/proc/sys/net``."""

from __future__ import annotations

import socket
from pathlib import Path


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


def path_of(family: str, device: str, key: str) -> Path:
    """The file of a device's setting."""
    return Path("/proc/sys/net") / family / "conf" / device / key
