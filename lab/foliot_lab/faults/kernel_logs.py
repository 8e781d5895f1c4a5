"""The kernel logs of the lab's hosts. All hosts share one kernel, so each has a named pipe in place of its log."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

_XID = "NVRM: Xid (PCI:0000:65:00): {number}, pid=1234, name=python, {words}\n"
_WORDS = {
    48: "DBE (double bit error) ECC error",
    63: "Row Remapper: New row marked for remapping",
    79: "GPU has fallen off the bus.",
    95: "Uncontained ECC error",
}
"""How the driver tells some kinds of error; docs.nvidia.com/deploy/xid-errors has all."""


class KernelLogs:
    """The pipes that agents read as their kernel's log. `close` it whatever happens.

    Parameters:
        file: the pipe of a host.
    """

    def __init__(self, hosts: Iterable[str], file: Callable[[str], Path]) -> None:
        self._pipes: dict[str, int] = {}
        for host in hosts:
            os.mkfifo(file(host))
            # Read and write, so that it opens without a reader, and that no reader ever sees its end.
            self._pipes[host] = os.open(file(host), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def xid(self, host: str, number: int) -> None:
        """Writes what NVIDIA's driver writes of a GPU's error.

        Raises:
            OSError: nobody has read the log for long.
        """
        words = _WORDS.get(number, "Ch 00000001")
        os.write(self._pipes[host], _XID.format(number=number, words=words).encode())

    def close(self) -> None:
        """Closes the pipes. May be called twice."""
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                os.close(pipe)
        self._pipes.clear()
