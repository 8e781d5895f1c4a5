"""A transcript of a detector's input about one path, in order, with the times at which each message was true."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_lab.simulate.loop import MS
from foliot_schemas import DelayBatch, Witness
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from foliot_lab.simulate.central import Heard

_WORDS = {
    Witness.SOURCE: "sent", Witness.DESTINATION: "heard", Witness.FELL_SILENT: "fell silent", Witness.SPEAKS_AGAIN: "speaks again",
}  # fmt: skip
_BEFORE_NS, _AFTER_NS = 700 * MS, 300 * MS


class Line(NamedTuple):
    """A message about the path.

    Times are in ms from the given moment; `said_ms` and `last_ms` are by the sender's clock.
    """

    taken_ms: float
    node: str
    said_ms: float
    word: str
    probes: int
    last_ms: float
    sequence: int

    def __str__(self) -> str:
        """The line as text for people."""
        return (
            f"{self.taken_ms:9.1f}  {self.node:<8} of {self.said_ms:9.1f}  {self.word:<12} {self.probes:3}"
            f"  last {self.last_ms:9.1f}  number {self.sequence}"
        )


def transcript(path: str, at_ns: int, taken: Sequence[Heard], after_ns: int = _AFTER_NS) -> Iterator[Line]:
    """The messages about a path that the detector took in, from shortly before a moment on."""
    ends = {node_of(nic) for nic in parse_path(path)[:2]}
    for taken_ns, message in taken:
        if not -_BEFORE_NS <= taken_ns - at_ns <= after_ns or not isinstance(message, DelayBatch):
            continue
        if message.node not in ends or path not in message.paths:
            continue
        rows = message.rows()
        for row in rows[rows["path"] == message.paths.index(path)]:
            yield _line(row, message, (taken_ns - at_ns) / MS, at_ns)


def _line(row: np.void, message: DelayBatch, taken_ms: float, at_ns: int) -> Line:
    witness = int(row["witness"])
    count = int(row["sent"] if witness == Witness.SOURCE else row["received"])
    return Line(
        taken_ms, message.node, (message.at_ns - at_ns) / MS, _WORDS.get(witness, str(witness)), count,
        (int(row["last_ns"]) - at_ns) / MS, int(row["sequence"]),
    )  # fmt: skip
