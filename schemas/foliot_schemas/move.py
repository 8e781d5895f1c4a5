"""Moves that the coordinator of a rail orders of a shard of the remediator, and the shard's answers.

The shard alone commands its nodes. An order is published again until it is answered, and does nothing twice.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import (  # noqa: TC001 - msgspec reads annotations at run time
    Count,
    Id,
    LongName,
    Name,
    Text,
    Time,
    Word,
)
from foliot_schemas.event import Evidence  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.placement import Placement  # noqa: TC001 - msgspec reads annotations at run time

MOST_MOVES = 1_024
"""Moves in an order, at most: as many homes as may wait to be written."""

MoveStatus = Literal["done", "advised", "refused", "failed"]


class HomeMove(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One destination's traffic, and where it is to belong."""

    node: Name
    """Node that sends the traffic; one of the shard's."""
    way: Placement
    """Its new home. When it is taken back: the home that it was given."""
    home: Placement | None = None
    """Where it comes back to; null: to the default of the remediator's settings. It counts only when it is taken
    back."""


class MoveOrder(msgspec.Struct, frozen=True, kw_only=True, tag="move-order.v1"):
    """Moves of a shard's nodes off a contended link, or back. Without moves, it tells a shard who coordinates."""

    id: Id
    """Deterministic: a shard carries an order out once."""
    shard: Name
    """Role of the shard that commands these nodes."""
    rail: Name
    """The rail that carries the traffic."""
    term: Count
    """Revision of the coordinator's lease; a shard refuses an order with a lower one than the rail's highest."""
    who: LongName
    """The contended link."""
    cause: Text
    """Id of the event that it answers."""
    fault: Text = ""
    """Name of that event's fault."""
    issued_ns: Time
    """When it was decided, reference time."""
    deadline_ns: Time
    """Past this reference time nobody begins to carry it out."""
    moves: Annotated[tuple[HomeMove, ...], msgspec.Meta(max_length=MOST_MOVES)] = ()
    """What is to be moved."""
    take_back: bool = False
    """Takes back what an earlier order moved."""
    advice: bool = False
    """The shard publishes it as advice, and moves nothing."""
    evidence: Evidence = {}
    """Numbers that the commands are to say, by name."""


class MoveAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="move-answer.v1"):
    """The result of an order, when all nodes concerned have answered."""

    order: Id
    """The order's id."""
    shard: Name
    """Role of the shard that answers."""
    term: Count
    """The order's."""
    at_ns: Time
    """When the last node answered, reference time."""
    statuses: Annotated[tuple[MoveStatus, ...], msgspec.Meta(max_length=MOST_MOVES)]
    """Of each move of the order. `refused`: nothing was commanded. `failed`: the node refused, or did not answer."""
    guard: Word = ""
    """The guard that refused the first refused move; `fence`: the order was an older coordinator's."""
