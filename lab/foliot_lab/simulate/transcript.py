"""A transcript of a detector's input about one path, in order, with the times at which each message was true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_lab.simulate.loop import MS
from foliot_schemas import DelayBatch, Witness
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from foliot_lab.simulate.central import Heard

_WORDS = {
    Witness.SOURCE: "sent", Witness.DESTINATION: "heard", Witness.FELL_SILENT: "fell silent",
    Witness.SPEAKS_AGAIN: "speaks again",
}  # fmt: skip
_BEFORE_NS, _AFTER_NS = 700 * MS, 300 * MS


def transcript(path: str, at_ns: int, taken: Sequence[Heard], after_ns: int = _AFTER_NS) -> Iterator[str]:
    """The messages about a path that the detector took in, a line each, from shortly before a moment on.

    Times are in ms from that moment; when a message was said and its last probe came is by the sender's clock.
    """
    ends = {node_of(nic) for nic in parse_path(path)[:2]}
    for taken_ns, message in taken:
        if not -_BEFORE_NS <= taken_ns - at_ns <= after_ns or not isinstance(message, DelayBatch):
            continue
        if message.node not in ends or path not in message.paths:
            continue
        rows = message.rows()
        for row in rows[rows["path"] == message.paths.index(path)]:
            yield _line(row, message, taken_ns, at_ns)


def _line(row: np.void, message: DelayBatch, taken_ns: int, at_ns: int) -> str:
    witness = int(row["witness"])
    count = int(row["sent"] if witness == Witness.SOURCE else row["received"])
    taken_ms, said_ms, last_ms = ((ns - at_ns) / MS for ns in (taken_ns, message.at_ns, int(row["last_ns"])))
    return (
        f"{taken_ms:9.1f}  {message.node:<8} of {said_ms:9.1f}  {_WORDS.get(witness, str(witness)):<12} {count:3}"
        f"  last {last_ms:9.1f}  number {row['sequence']}"
    )
