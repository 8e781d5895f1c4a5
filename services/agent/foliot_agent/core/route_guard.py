"""Objections to an order to send traffic another way. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from foliot_agent.core.failed_links import FailedLinks
    from foliot_agent.core.overlay_layout import Layout
    from foliot_agent.core.routing_table import RoutingTable
    from foliot_schemas import Node, Placement, Reroute, Restore


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The state by which an order is judged, and by which all that moves traffic goes. It is kept up to date."""

    layout: Layout
    peers: dict[str, Node]
    routing: RoutingTable
    losses: FailedLinks


def object_to_route(order: Reroute | Restore, issued_ns: int, situation: Situation) -> str:
    """The first reason not to do it; empty: there is none."""
    own = object_to_own_nics(order, situation.losses)
    return _names(order, situation) or own or _losses(order, issued_ns, situation)


def object_to_own_nics(order: Reroute | Restore, losses: FailedLinks) -> str:
    """Why the node's own NICs cannot carry it; empty: they can."""
    for rail in (*order.back, *(placement.via for placement in order.placements)):
        if rail in losses.own:
            return f"the node's own NIC on {rail} is lost"
    return ""


def _names(order: Reroute | Restore, situation: Situation) -> str:
    rails = situation.layout.rails
    if not (order.away or order.back or order.placements):
        return "it asks for nothing"
    for rail in (*order.away, *order.back):
        if rail not in rails:
            return f"the node has no NIC on {rail}"
    if both := sorted(set(order.away) & set(order.back)):
        return f"it sends {', '.join(both)} away and back at once"
    return next(filter(None, (unknown(placement, situation) for placement in order.placements)), "")


def unknown(placement: Placement, situation: Situation) -> str:
    """The part of a placement that the node does not know; empty if it knows all of it."""
    peer = situation.peers.get(placement.peer)
    if peer is None:
        return f"{placement.peer} is not in the inventory"
    if placement.key:
        return f"a service address has no key, and this one has {placement.key[:64]}"
    for rail in (placement.rail, placement.via):
        if rail not in situation.layout.rails:
            return f"the node has no NIC on {rail}"
        if rail not in {nic.rail for nic in peer.nics}:
            return f"{placement.peer} has no NIC on {rail}"
    entropies = min(len(situation.layout.node.nic(placement.via).entropies), len(peer.nic(placement.via).entropies))
    if not 0 <= placement.entropy < entropies:
        return f"{placement.via} has {entropies} entropies, there is no number {placement.entropy}"
    return ""


def _losses(order: Reroute | Restore, issued_ns: int, situation: Situation) -> str:
    losses, routing = situation.losses, situation.routing
    for rail in order.away:
        if rail not in routing.away and not routing.can_leave(rail, losses.dead):
            return f"{rail} cannot be left: no backup that is alive is armed for any of its addresses"
    for placement in order.placements:
        told_ns = losses.told_ns(placement.peer, placement.via)
        if told_ns is not None and issued_ns <= told_ns:
            return f"{placement.peer} has said since that its NIC on {placement.via} is lost"
    return ""
