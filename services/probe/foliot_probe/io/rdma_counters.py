"""Reads an RDMA device's counters of its port, which the kernel's counters of the network device lack."""

from __future__ import annotations

from pathlib import Path

_SYS = Path("/sys")


class LinkDowned:
    """Reads ``link_downed``: how often the port's training failed (InfiniBand's PortCounters; RoCE devices have it too).

    Where there is no sysfs, or a device has no RDMA device, it reads nothing.
    """

    def __init__(self, sys: Path = _SYS) -> None:
        self._net = sys / "class/net"
        self._files: dict[tuple[str, int], Path | None] = {}

    def read(self, device: str, index: int) -> dict[str, int]:
        """The count by its name; empty: there is none.

        When a driver makes a device anew, with another index, files are looked for anew.
        """
        key = device, index
        if key not in self._files:
            self._files = {known: file for known, file in self._files.items() if known[0] != device}
            self._files[key] = self._find(device)
        file = self._files[key]
        if file is None:
            return {}
        try:
            return {"link_downed": int(file.read_text())}
        except (OSError, ValueError):  # it is being removed, or says N/A
            return {}

    def _find(self, device: str) -> Path | None:
        """The file of the network device's own port, by its number: several ports may share a PCI function."""
        try:
            number = int((self._net / device / "dev_port").read_text()) + 1
        except (OSError, ValueError):
            number = 1
        found = sorted((self._net / device / "device/infiniband").glob(f"*/ports/{number}/counters/link_downed"))
        return found[0] if len(found) == 1 else None
