"""A probe on the wire: 144 bytes, little-endian, the same in both directions of a stream; zeros may follow (see below).

A transmit stamp is known only after the packet has left, so every probe carries the stamps of its predecessors. It also
echoes the stamps of probes that its sender has heard, so that either end can put both directions together. The place of
a stamp shows its probe. Place ``i`` of `transmit_ns` is of the probe ``sequence - 1 - i``. Place ``i`` of `receive_ns`
is of the peer's probe ``heard - i``. A stamp of 0 says "not known (any more, or yet)".

::

     0        4      5        6         8     12            16
    +--------+------+--------+---------+-----+-------------+
    | magic  | kind | use    | mesh_ms | row | interval_us |
    +--------+------+--------+---------+-----+-------------+ 16
    | session of the sender    | sequence                  |
    +--------------------------+---------------------------+ 32
    | transmit_ns of sequence - 1 ... sequence - 4         |
    +--------------------------+---------------------------+ 64
    | session of the receiver  | heard: highest sequence   |
    +--------------------------+---------------------------+ 80
    | receive_ns of heard ... heard - 7                    |
    +------------------------------------------------------+ 144

`session` is drawn anew for every stream and start, so that nobody mixes up two lives of a sender. `row` means something
to the sender alone, when the kernel hands the packet back with its transmit stamp. `interval_us` promises that the next
probe follows within this time. If that is more than `IDLE_US`, another path stands for this one. `mesh_ms` is the time between two coded pairs that the sender wants on the stream, for
the clocks. A 0 says that it does not count the stream to the mesh. Stamps are local times of the host that took them.

Some probes are padded with zeros to full size, the largest packet that both ends' devices carry. They find a link that
passes only smaller packets. The upper 14 bits of `row` say how large a packet (as IP) the sender's own device carries.
A 0, as in earlier versions, says that it takes no padded probes. The lowest bit of `use` says whether the path is in
use. The other seven count the padded probes sent so far, this one
included: from 1 to 127 and round again. So the receiver knows how many were lost. 0: none are sent. A probe is
full-size if it is longer than 144 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from foliot_schemas.bounds import FAR_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_schemas.observation import StampKind

MAGIC = int.from_bytes(b"Fop1", "little")
"""A name and the version of the layout."""

PREDECESSORS = 4
"""Transmit stamps in a probe. A stamp survives the loss of this many probes less one, in a row."""

ECHOES = 8
"""Receive stamps in a probe.

They are twice as many: a peer sends four times as often as we do when a path is in use in one direction only.
"""

ProbePacket = np.dtype(
    [
        ("magic", "<u4"),
        ("kind", "u1"),
        ("use", "u1"),
        ("mesh_ms", "<u2"),
        ("row", "<u4"),
        ("interval_us", "<u4"),
        ("session", "<u8"),
        ("sequence", "<i8"),
        ("transmit_ns", "<i8", (PREDECESSORS,)),
        ("peer_session", "<u8"),
        ("heard", "<i8"),
        ("receive_ns", "<i8", (ECHOES,)),
    ],
)

ROW_BITS = 18
"""Bits of `row` that hold the row. They number 262,144 streams, more than any node could send."""
IN_USE = 1
"""Bit of `use`: the path is in use."""
IDLE_US = 20_000_000
"""No rate of the settings has its probes so far apart."""
FULL_COUNTS = 127
"""Values that the count of padded probes takes."""
MOST_BYTES = 9_216
"""Size of the largest probe, as a packet: switches with jumbo frames carry as much."""
LEAST_BYTES = 576
"""Size of the smallest padded probe, as a packet.

Every host accepts as much (RFC 791), so a smaller one tells nothing.
"""
IP_UDP_BYTES = 28
"""Bytes of a packet that are not UDP payload: both headers (RFC 791, RFC 768)."""

KINDS: tuple[StampKind, ...] = ("hardware", "kernel", "user")
"""Values of `kind` index this. A worse kind has a higher index, so the maximum is the worse of two ends."""
HARDWARE, KERNEL, USER = range(len(KINDS))

_HIGHEST_SEQUENCE = 1 << 62
"""Keeps sums of sequences inside int64, whatever a stranger sends."""

_LEAST, _MOST = np.zeros(1, ProbePacket), np.frombuffer(b"\xff" * ProbePacket.itemsize, ProbePacket).copy()
"""The least and the greatest permitted value of each field."""
_LEAST["interval_us"] = 1
_MOST["sequence"] = _HIGHEST_SEQUENCE - 1
_LEAST["heard"], _MOST["heard"] = -1, _HIGHEST_SEQUENCE - 2
# Stamps lie within 146 years of 0, so that differences of them fit into 64 bits, and the bus takes what comes of them.
_LEAST["transmit_ns"] = _LEAST["receive_ns"] = 1 - FAR_NS
_MOST["transmit_ns"] = _MOST["receive_ns"] = FAR_NS - 1
_Words = np.dtype([("words", "<u8", (ProbePacket.itemsize // 8,))])
_LEAST_WORDS = _LEAST.view(_Words)["words"]
_RANGE = _MOST.view(_Words)["words"] - _LEAST_WORDS
"""By how much each word may exceed the least, in wrapping arithmetic: one comparison for both bounds of all fields."""


def is_probe(probes: NDArray[Any], lengths: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Selects the datagrams (of these lengths in bytes) that are probes of this version, padded or not."""
    words = probes.view(_Words)["words"]
    sane: NDArray[np.bool_] = (
        (words - _LEAST_WORDS <= _RANGE).all(axis=1)
        & (probes["magic"] == MAGIC)
        & (probes["kind"] <= USER)
        & (lengths >= ProbePacket.itemsize)
        & (lengths <= MOST_BYTES)
    )
    return sane
