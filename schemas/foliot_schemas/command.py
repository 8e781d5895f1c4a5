"""What the remediator asks of a node, and what the node answers. Few, may not be lost, safe to deliver twice."""

from __future__ import annotations

from typing import Literal

import msgspec

Verb = Literal["reroute", "restore"]
OutcomeStatus = Literal["done", "already", "advised", "refused", "failed"]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Which way the traffic to one service address goes."""

    peer: str
    """Node that has the service address."""
    rail: str
    """Rail that the service address belongs to."""
    via: str
    """Rail that carries it."""
    entropy: int
    """Index of the entropy that carries it."""


class Command(msgspec.Struct, frozen=True, kw_only=True, tag="command.v1"):
    """A change of routes on one node. Applying it twice does nothing more than once."""

    id: str
    verb: Verb
    node: str
    cause: str
    """Id of the event that it answers."""
    issued_ns: int
    deadline_ns: int
    """Past this reference time the node refuses it."""
    lease_revision: int
    """Revision of the remediator's lease; a node refuses one lower than the highest it has seen."""
    away: tuple[str, ...] = ()
    """Rails whose own NIC is lost: all their service traffic takes the armed backups, in one rule each."""
    back: tuple[str, ...] = ()
    """Rails whose own NIC is to be used again."""
    placements: tuple[Placement, ...] = ()
    """Single destinations to be moved."""
    advice: bool = False
    """Published as advice: the node reports it and does nothing."""
    fault: str = ""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A datagram went to the peer's service address and came back: both directions flow."""

    peer: str
    rail: str
    at_ns: int
    round_trip_ns: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome.v1"):
    """What became of a command, or of a node's own armed move."""

    id: str
    command: str
    """The command's id; an armed move names itself after its fault."""
    verb: Verb
    node: str
    status: OutcomeStatus
    armed: bool = False
    """The node acted by itself, before any command."""
    cause: str = ""
    reason: str = ""
    started_ns: int = 0
    moved_ns: int = 0
    """The kernel has acknowledged the new routes."""
    confirmed_ns: int = 0
    """Last of `confirmations`; 0 if not all of the expected ones came."""
    expected: int = 0
    """Pairs to be confirmed on the wire."""
    confirmations: tuple[Confirmation, ...] = ()
    away: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()
    """What is in force now for the destinations concerned."""
    undo: tuple[Placement, ...] = ()
    """What was in force before."""
    fault: str = ""
