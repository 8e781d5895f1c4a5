"""The page of shared memory that has the time: a node's probe writes it, and any process of the node reads it.

It is a file of two slots and a count. The writer fills the slot that is not the latest, and then raises the count. A
reader takes the slot that the count names. So it never waits, not even for a writer that died in the middle. A slot
that was overwritten while it was read has another checksum, also where a processor shows one's stores to another out of
order. Numbers are in the machine's own byte order. docs/subscribe.md has the layout as structures of C.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from foliot_schemas import ClockState

MAGIC = b"FOLIOTck"
VERSION = 1
SIZE = 8_192
COUNT = 2
"""Place of the count, in words of 64 bits."""

STATUSES = ("unsynchronised", "synchronised", "holdover", "disrupted")
TIMESCALES = ("free", "nodes", "utc", "tai")
DISAGREEMENTS = ("none", "offset", "leap", "both")
SLEPT_NS = 1_000_000
"""The shortest sleep that counts as one. A host's clocks are read one after the other, and a busy host pauses in
between."""

HEADER = struct.Struct("=8sIIQQ16s1024s1024s")
SLOT = struct.Struct("=QqqqqqddddqqQQdII1024s")
CHECKSUM = struct.Struct("=I")
ADDED = struct.Struct("=QqqqqqddI")
"""Added behind a slot's checksum, where earlier readers do not look: the slot's number again, and what they do not
know. A checksum of its own follows."""
ADDED_AT = 1_160
"""Its place in a slot: behind the checksum, in words of 64 bits."""
SLOTS, SLOT_SIZE = 4_096, 2_048
ADDED_END = ADDED_AT + ADDED.size + CHECKSUM.size
"""The end of its checksum in a slot."""
_TRIES = 100
"""A writer laps a reader once in two seconds at most. Only a damaged page is read so often in vain."""
_BOOT_DIGITS = 32

Why = Literal["no-page", "foreign", "damaged", "unsynchronised", "disrupted", "void", "slept", "wide"]


class ClockUnknown(Exception):  # noqa: N818 - what is so, not what went wrong
    """There is no time to be trusted now; the message says why, and what to do.

    Parameters:
        why: one of these words.
            `no-page`: there is none, or it may not be read.
            `foreign`: the page is of another boot, time namespace or version.
            `damaged`: the page is damaged.
            `unsynchronised`, `disrupted`: the status that sync published.
            `void`: nothing was heard for too long.
            `slept`: the host was suspended, which its clock has not counted.
            `wide`: the bound is not yet as narrow as asked for.
    """

    def __init__(self, why: Why, sentence: str) -> None:
        super().__init__(sentence)
        self.why = why


class Told(NamedTuple):
    """A slot."""

    number: int
    offset_ns: int
    as_of_ns: int
    void_after_ns: int
    bound_ns: int
    hard_bound_ns: int
    drift_ppb: float
    growth_ppb: float
    wander_ppb: float
    hard_growth_ppb: float
    slept_ns: int
    """How long the host had been suspended, from its boot to this state."""
    told_ns: int
    """Local time when it was written."""
    window: int
    neighbours: int
    surplus_ns: float
    status: int
    timescale: int
    reference: bytes
    utc_offset_s: int = 0
    tai_offset_s: int = 0
    leap_s: int = 0
    leap_at_ns: int = 0
    utc_offset_error_ns: int = -1
    stamp_noise_ns: float = 0.0
    rate_wander_ppb: float = 0.0
    utc_disagreement: int = 0

    def packed(self) -> bytes:
        """The bytes of the slot."""
        slot, added = SLOT.pack(*self[:_FIRST]), ADDED.pack(self.number, *self[_FIRST:])
        whole = (slot + CHECKSUM.pack(zlib.crc32(slot))).ljust(ADDED_AT, b"\0")
        return whole + added + CHECKSUM.pack(zlib.crc32(added))

    @classmethod
    def read(cls, slot: bytes) -> Told | None:
        """What stands in a slot; None: it is damaged, or was overwritten meanwhile.

        An earlier probe leaves zeros in the added part, or that of another number, which a later one wrote before.
        """
        first, added = slot[: SLOT.size], slot[ADDED_AT : ADDED_AT + ADDED.size]
        if CHECKSUM.unpack_from(slot, SLOT.size)[0] != zlib.crc32(first):
            return None
        fields = SLOT.unpack(first)
        if any(slot[ADDED_AT:]):
            if CHECKSUM.unpack_from(slot, ADDED_AT + ADDED.size)[0] != zlib.crc32(added):
                return None
            number, *more = ADDED.unpack(added)
            fields += tuple(more) if number == fields[0] else ()
        told = cls(*fields)
        known = (
            told.status < len(STATUSES)
            and told.timescale < len(TIMESCALES)
            and told.utc_disagreement < len(DISAGREEMENTS)
        )
        return told if known else None


_FIRST = Told._fields.index("utc_offset_s")
"""The number of fields that earlier readers know."""


class Header(NamedTuple):
    """The constant part of a page."""

    magic: bytes
    version: int
    size: int
    number: int
    time_namespace: int
    boot: bytes
    clock: bytes
    skew: bytes
    """Path of the file with the error that a lab adds to the local time; empty on a real host."""


def as_state(told: Told, clock: str) -> ClockState:
    """The state as sync published it."""
    from foliot_schemas import ClockState  # noqa: PLC0415 - a program that only wants the time need not load the contract

    fields: dict[str, Any] = {
        name: value for name, value in told._asdict().items() if name in ClockState.__struct_fields__
    }
    fields["status"], fields["timescale"] = STATUSES[told.status], TIMESCALES[told.timescale]
    fields["utc_disagreement"] = DISAGREEMENTS[told.utc_disagreement]
    fields["reference"] = text(told.reference)
    return ClockState(clock=clock, **fields)


class Page:
    """A page, mapped to be read.

    Raises:
        ClockUnknown: there is none, it may not be read, or it does not hold for this process.
    """

    def __init__(self, path: str) -> None:
        try:
            with Path(path).open("rb") as file:
                found = os.fstat(file.fileno())
                self.identity = (found.st_dev, found.st_ino)
                memory = mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ) if found.st_size == SIZE else None
        except FileNotFoundError:
            raise ClockUnknown(
                "no-page", f"{path} is not there: no probe runs on this node, or [clock] page names another place"
            ) from None
        except OSError as error:
            raise ClockUnknown("no-page", f"{path} cannot be read: {error.strerror}") from error
        if memory is None:
            raise ClockUnknown("foreign", f"{path} is no clock's page, or another version's")
        self.header = Header._make(HEADER.unpack_from(memory))
        self._memory = memory
        self.words = memoryview(memory).cast("Q")
        _check(self.header, path)

    def latest(self) -> Told:
        """The latest state.

        Raises:
            ClockUnknown: the page is damaged.
        """
        for _ in range(_TRIES):
            count = self.words[COUNT]
            start = SLOTS + SLOT_SIZE * (count & 1)
            told = Told.read(self._memory[start : start + ADDED_END])
            if told is not None and told.number == count:
                return told
        raise ClockUnknown("damaged", "the clock's page is damaged; the probe writes a new one when it starts")


def _check(header: Header, path: str) -> None:
    if header.magic != MAGIC or header.version != VERSION:
        raise ClockUnknown("foreign", f"{path} is no clock's page, or another version's")
    own_boot, own_namespace = boot(), time_namespace()
    if bytes(16) not in {own_boot, header.boot} and own_boot != header.boot:
        raise ClockUnknown("foreign", f"{path} was written before this host's last boot")
    if 0 not in {own_namespace, header.time_namespace} and own_namespace != header.time_namespace:
        raise ClockUnknown("foreign", f"{path}: its probe is in another time namespace, where clocks show other times")


def text(field: bytes) -> str:
    """A field of text, which is filled up with zeros."""
    return field.rstrip(b"\0").decode(errors="replace")


def slept_ns() -> int:
    """How long this host was suspended since boot, in ns: CLOCK_BOOTTIME less CLOCK_MONOTONIC, best of three tries."""
    best = (1 << 62, 0)
    for _ in range(3):
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        boottime_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        best = min(best, (after_ns - before_ns, boottime_ns - before_ns))
    return best[1]


def boot() -> bytes:
    """The id of the kernel's boot, or ``FOLIOT_BOOT_ID`` where /proc/sys cannot be seen; zeros if it is unknown."""
    try:
        found = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        found = os.environ.get("FOLIOT_BOOT_ID", "")
    digits = found.strip().replace("-", "")
    try:
        return bytes.fromhex(digits) if len(digits) == _BOOT_DIGITS else bytes(16)
    except ValueError:
        return bytes(16)


def time_namespace() -> int:
    """The number of this process's time namespace, which may shift CLOCK_MONOTONIC_RAW; 0 where the kernel has none."""
    try:
        return Path("/proc/self/ns/time").stat().st_ino
    except OSError:
        return 0
