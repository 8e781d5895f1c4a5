"""Writes the page of a node's time. The probe uses it."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

from foliot.clock.page import (
    COUNT,
    DISAGREEMENTS,
    HEADER,
    MAGIC,
    SIZE,
    SLEPT_NS,
    SLOT_SIZE,
    SLOTS,
    STATUSES,
    TIMESCALES,
    VERSION,
    ClockUnknown,
    Header,
    Page,
    Told,
    boot,
    slept_ns,
    time_namespace,
)

if TYPE_CHECKING:
    from foliot_schemas import ClockState

_NOTHING = Told(0, 0, 0, 0, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, STATUSES.index("unsynchronised"), 0, b"")
"""The state before sync's first one."""


class PageWriter:
    """The page of a node's probe.

    The state that an earlier probe of this boot left there stands until sync speaks again.

    Parameters:
        skew: path of the file with a lab's clock error; empty: none.

    Raises:
        OSError: the page cannot be written there, or another probe writes it.
    """

    def __init__(self, path: str, clock: str, skew: str = "") -> None:
        place = Path(path).absolute()
        if not place.parent.exists():
            place.parent.mkdir(parents=True)
            place.parent.chmod(0o755)  # whatever the umask: every process reads the page
        self._lock = _lock(place.with_name(f".{place.name}.lock"))
        try:
            self._slept_ns = self._slept_before_ns = slept_ns()
            self._awake_ns = -(1 << 62)
            self._void_after_ns: int | None = None
            self._measured = True
            """Whether the clock was measured since the host has slept last."""
            self._count = 0
            lab = str(Path(skew).absolute()).encode() if skew else b""
            header = Header(MAGIC, VERSION, SIZE, 0, time_namespace(), boot(), clock.encode(), lab)
            kept = self._kept(place, header)
            self._memory = _made(place, header)
            self._words = memoryview(self._memory).cast("Q")
            self._put(kept or _NOTHING._replace(slept_ns=self._slept_ns))
            os.replace(_new(place), place)  # noqa: PTH105 - as the calls around it
        except BaseException:
            os.close(self._lock)
            raise

    def write(self, state: ClockState, local_ns: int) -> None:
        """Writes sync's state of the clock, as of this local time."""
        slept = slept_ns()
        if abs(slept - self._slept_ns) > SLEPT_NS:
            self._slept_before_ns, self._slept_ns, self._awake_ns = self._slept_ns, slept, local_ns
            self._measured = False
        # A measurement from before the host slept does not hold after it. With another reference or leader, sync dates
        # the last one anew. But when a state becomes void follows from its measurement alone.
        self._measured |= state.as_of_ns >= self._awake_ns and state.void_after_ns != self._void_after_ns
        self._void_after_ns = state.void_after_ns
        slept_then_ns = self._slept_ns if self._measured else self._slept_before_ns
        said = {name: getattr(state, name) for name in Told._fields if hasattr(state, name)} | {
            "status": STATUSES.index(state.status),
            "timescale": TIMESCALES.index(state.timescale),
            "utc_disagreement": DISAGREEMENTS.index(state.utc_disagreement),
            "reference": state.reference.encode(),
        }
        self._put(_NOTHING._replace(slept_ns=slept_then_ns, told_ns=local_ns, **said))

    def close(self) -> None:
        """Lets another probe write. The page stays: its state holds until it is void."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _put(self, told: Told) -> None:
        count = self._count + 1
        slot = told._replace(number=count).packed()
        start = SLOTS + SLOT_SIZE * (count & 1)
        self._memory[start : start + len(slot)] = slot
        self._words[COUNT] = self._count = count

    def _kept(self, place: Path, header: Header) -> Told | None:
        """The state that an earlier probe wrote there, if it was of this user, boot and clock."""
        try:
            if place.lstat().st_uid != os.geteuid() or place.is_symlink():
                return None
            page = Page(str(place))
            told = page.latest()
        except (OSError, ClockUnknown):
            return None
        name, skew = page.header.clock.rstrip(b"\0"), page.header.skew.rstrip(b"\0")
        same = (page.header.boot, name, skew) == (header.boot, header.clock, header.skew)
        return told if same and abs(told.slept_ns - self._slept_ns) <= SLEPT_NS else None


def _lock(path: Path) -> int:
    """Locks the page for this probe. Two probes in one place would write different clocks' states by turns."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise OSError(
            error.errno, "another probe writes it: [clock] page must differ between nodes on one machine"
        ) from None
    return descriptor


def _new(place: Path) -> Path:
    return place.with_name(f".{place.name}.new")


def _made(place: Path, header: Header) -> mmap.mmap:
    """A page under a temporary name. It gets its true name when all is in it."""
    path = _new(place)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(descriptor, 0o644)
        os.posix_fallocate(descriptor, 0, SIZE)  # a full disk is found here, and not by a signal at the first store
        memory = mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)
    HEADER.pack_into(memory, 0, *header)
    return memory
