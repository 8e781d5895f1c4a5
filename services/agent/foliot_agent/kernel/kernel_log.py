"""The kernel's log, followed from its end on, for what drivers of GPUs write to it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from foliot_agent.core.kernel_lines import Bound, Lines, read
from foliot_schemas import GpuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from foliot.clock import Clock

log = structlog.get_logger()

_RECORD = 8_192
"""The largest record that /dev/kmsg gives; to a smaller buffer it gives none."""
_AT_ONCE = 64
"""Records read in one turn of the event loop. It calls again while there are more."""


class KernelLog:
    """Follows the log. Open it by `open`, and `close` it.

    Parameters:
        path: /dev/kmsg, or a FIFO into which somebody writes such lines.
        publish: called with each error.
    """

    def __init__(self, path: str, node: str, clock: Clock, publish: Callable[[GpuError], None]) -> None:
        self._path = path
        self._node = node
        self._clock = clock
        self._publish = publish
        self._lines = Lines()
        self._bound = Bound()
        self._file = -1

    def open(self) -> None:
        """Begins to follow. Where it cannot, the reason is in the log: all else goes on."""
        try:
            self._file = _opened(self._path)
            asyncio.get_running_loop().add_reader(self._file, self._read)
        except OSError as error:
            self.close()
            self._fail(error)

    def close(self) -> None:
        """Follows no more."""
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                data = os.read(self._file, _RECORD)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # older records were overwritten; the next call gives the oldest left
                    continue
                self.close()
                self._fail(error)
                return
            if not data:
                self.close()
                log.warning("kernel_log_ended", path=self._path)
                return
            for line in self._lines.take(data):
                self._take(line)

    def _take(self, line: bytes) -> None:
        if (error := read(line)) is None:
            return
        now_ns = self._clock.now_ns()
        if not self._bound.passes(error, now_ns):
            if self._bound.left_out.bit_count() == 1:  # said at 1, 2, 4, 8: a flood of errors is no flood of lines
                log.warning("gpu_errors_left_out", count=self._bound.left_out, xid=error.xid, device=error.device)
            return
        log.warning("gpu_error", xid=error.xid, device=error.device, message=error.message)
        self._publish(
            GpuError(
                node=self._node, at_ns=now_ns, bound_ns=self._clock.bound_ns(), xid=error.xid, device=error.device,
                message=error.message,
            )
        )  # fmt: skip

    def _fail(self, error: OSError) -> None:
        log.warning("kernel_log_not_read", path=self._path, reason=error.strerror)


def _opened(path: str) -> int:
    """The file, at its end.

    Raises:
        OSError: it is not there, may not be read, or is none that can be followed.
    """
    is_fifo = Path(path).is_fifo()
    # A FIFO that is open for writing too does not end when its writers leave.
    opened = os.open(path, (os.O_RDWR if is_fifo else os.O_RDONLY) | os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a FIFO has no places
        os.lseek(opened, 0, os.SEEK_END)
    return opened
