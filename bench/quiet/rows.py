"""The rows of the quiet bench, and their summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

Where = Literal["cores", "lab"]


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trial without a path fault. Fields with their good values are not written."""

    what: str
    """The kind of disturbance."""
    where: Where
    seed: int
    idle_cpu: float | None = None
    """Idle share of this machine's processors; None in virtual time, which it does not change."""
    events_false: int = 0
    commands_false: int = 0
    moves_false: int = 0
    detail: str = ""
    told: tuple[str, ...] = ()
    """The first few of the false events."""


class SilenceRow(Row, frozen=True, kw_only=True, omit_defaults=True):
    """A trial with a path that drops everything, or everything of full size, under the same disturbances.

    Times count from the fault; None: missed.
    """

    fault: str
    detect_ms: float | None
    moved_ms: float | None


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Per place and kind of disturbance: the number of trials, and how often harm was done."""
    return [
        {
            "where": where, "what": what, "trials": len(of),
            "events_false": sum(row.events_false for row in of),
            "commands_false": sum(row.commands_false for row in of),
            "moves_false": sum(row.moves_false for row in of),
        }
        for (where, what), of in _groups(rows).items()
    ]  # fmt: skip


def silences(rows: Sequence[SilenceRow]) -> list[dict[str, Any]]:
    """Per place and kind of disturbance: the times until silences were found and left."""
    return [
        {
            "where": where, "what": what, "trials": len(of),
            **_spread("detect", [row.detect_ms for row in of]), **_spread("moved", [row.moved_ms for row in of]),
            "events_false": sum(row.events_false for row in of),
            "commands_false": sum(row.commands_false for row in of),
        }
        for (where, what), of in _groups(rows).items()
    ]  # fmt: skip


def _groups(rows: Sequence[Any]) -> dict[tuple[str, str], list[Any]]:
    """Rows by place and kind, and after those of a place all of its rows."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row.where, row.what), []).append(row)
    for row in rows:
        groups.setdefault((row.where, "all"), []).append(row)
    return groups


def _spread(name: str, values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Percentiles over all trials. Missed ones count as infinite: None if a percentile is one of them."""
    known = np.sort([np.inf if value is None else value for value in values])
    percentiles = {
        f"{name}_p{share}_ms": float(known[min(len(known) - 1, int(len(known) * share / 100))])
        for share in (50, 95, 99)
    }
    missed = sum(value is None for value in values)
    return {key: None if np.isinf(value) else value for key, value in percentiles.items()} | {f"{name}_missed": missed}
