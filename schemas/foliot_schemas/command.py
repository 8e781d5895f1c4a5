"""What the remediator asks of a node, and what the node answers. Few, may not be lost, safe to deliver twice."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_schemas.bounds import (
    MOST_RAILS,
    Count,
    Entropy,
    Id,
    Name,
    Text,
    Time,
)

Verb = Literal["reroute", "restore"]
Rails = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_RAILS)]
OutcomeStatus = Literal["done", "already", "advised", "refused", "failed"]


class Placement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which way the traffic to one service address goes."""

    peer: Name
    """Node that has the service address."""
    rail: Name
    """Rail that the service address belongs to."""
    via: Name
    """Rail that carries it."""
    entropy: Entropy
    """Index of the entropy that carries it."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag="command.v1"):
    """A change of routes on one node. Applying it twice does nothing more than once."""

    id: Id
    """Deterministic: the same decision taken twice has the same id, and is carried out once."""
    verb: Verb
    """`reroute` away from trouble, `restore` the way of before."""
    node: Name
    """Node that carries it out."""
    cause: Text
    """Id of the event that it answers."""
    issued_ns: Time
    """When it was decided, reference time."""
    deadline_ns: Time
    """Past this reference time the node refuses it."""
    lease_revision: Count
    """Revision of the remediator's lease; a node refuses one lower than the highest it has seen."""
    away: Rails = ()
    """Rails whose own NIC is lost: all their service traffic takes the armed backups, in one rule each."""
    back: Rails = ()
    """Rails whose own NIC is to be used again."""
    placements: tuple[Placement, ...] = ()
    """Single destinations to be moved."""
    advice: bool = False
    """Published as advice: the node reports it and does nothing."""
    fault: Text = ""
    """Name of the fault that it answers; the trace id is derived from it."""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A datagram went to the peer's service address and came back: both directions flow."""

    peer: Name
    """Node that answered."""
    rail: Name
    """Rail of the service address."""
    at_ns: Time
    """When the answer was there, reference time."""
    round_trip_ns: Time
    """From sending to the answer."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome.v1"):
    """What became of a command, or of a node's own armed move."""

    id: Id
    """Deterministic, as a command's."""
    command: Id
    """The command's id; an armed move names itself after its fault."""
    verb: Verb
    """The command's."""
    node: Name
    """Node that speaks."""
    status: OutcomeStatus
    """`done`; `already`, it was so before; `advised`, it was advice and nothing was done; `refused` and `failed`: see `reason`."""
    armed: bool = False
    """The node acted by itself, before any command."""
    cause: Text = ""
    """Id of the event that the command answered."""
    reason: Text = ""
    """Why it was refused or failed, in words."""
    started_ns: Time = 0
    """When the node began, reference time."""
    moved_ns: Time = 0
    """When the kernel had acknowledged the new routes, reference time; 0 if it changed none."""
    confirmed_ns: Time = 0
    """Last of `confirmations`; 0 if not all of the expected ones came."""
    expected: Count = 0
    """Pairs to be confirmed on the wire."""
    confirmations: tuple[Confirmation, ...] = ()
    """Pairs confirmed on the wire."""
    away: Rails = ()
    """Rails whose traffic took the armed backups."""
    back: Rails = ()
    """Rails whose own NIC is used again."""
    placements: tuple[Placement, ...] = ()
    """What is in force now for the destinations concerned."""
    undo: tuple[Placement, ...] = ()
    """What was in force before."""
    fault: Text = ""
    """Name of the fault that it belongs to; the trace id is derived from it."""
