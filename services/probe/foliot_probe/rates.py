"""Which streams are probed fast: those whose path is in use, and those armed as its backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_probe.streams import StreamKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_schemas import NodePaths

DEFAULT_ENTROPY = 0
"""What carries a service address of which nobody has said otherwise."""


def in_use(keys: Iterable[StreamKey], paths: NodePaths | None) -> frozenset[StreamKey]:
    """The streams in use or armed, of all the node's streams, by what is in force on the node (None: not known yet).

    A service address without a placement is carried by its own rail.
    """
    placements = () if paths is None else paths.placements
    backups = () if paths is None else paths.backups
    placed = {(each.peer, each.rail) for each in placements}
    wanted = {StreamKey(each.peer, each.via, each.entropy) for each in (*placements, *backups)}
    return frozenset(
        key for key in keys if key in wanted or (key.entropy == DEFAULT_ENTROPY and (key.peer, key.rail) not in placed)
    )
