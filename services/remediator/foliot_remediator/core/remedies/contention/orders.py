"""What a coordinator orders of the shards that command the nodes, until they have answered it."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foliot_schemas import HomeMove, MoveOrder
from foliot_schemas.bounds import fitting

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_remediator.core.actions.decision import Decision
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.remedies.contention.mover import Mover
    from foliot_schemas import Event, MoveAnswer
    from foliot_schemas.event import Evidence

_MOVE_NS, _BACK_NS = 2_000_000_000, 60_000_000_000
"""How long after it was given an order to move, or to take back, may begin to be carried out."""
_AGAIN_NS = 500_000_000
"""An order is published again after this long: plain messages may be lost, or meet a shard between two holders."""
_PATIENCE_NS = 8_000_000_000
"""Beyond its deadline. A shard waits for its nodes for five seconds, and begins at the deadline at the latest."""


@dataclass(slots=True)
class _Open:
    order: MoveOrder
    again_ns: int


class Orders:
    """Gives orders, and gives them again until they are answered.

    Parameters:
        name: the remedy; it stands in the ids.
        mover: who carries out what is ordered of this shard.
    """

    def __init__(self, view: FleetView, name: str, mover: Mover) -> None:
        self._coordination, self._decider = view.coordination, view.decider
        self._name, self._mover = name, mover
        self._given = 0
        self._open: dict[str, _Open] = {}
        """By id, the oldest first."""

    def __contains__(self, order: str) -> bool:
        """Whether an order waits for its answer."""
        return order in self._open

    def move(
        self, event: Event, rail: str, term: int, moves: Iterable[HomeMove], now_ns: int,
        *, take_back: bool = False, advice: bool = False, evidence: Evidence | None = None,
    ) -> list[Decision]:  # fmt: skip
        """Orders moves because of an event; carries out what is ordered of this shard."""
        by_shard = collections.defaultdict[str, list[HomeMove]](list)
        for move in moves:
            by_shard[self._coordination.role_of(move.node)].append(move)
        made: list[Decision] = []
        for shard, own in by_shard.items():
            self._given += 1
            order = MoveOrder(
                id=fitting(f"{event.id}/{self._name}/{rail}/{term}/{self._given}"), shard=shard, rail=rail, term=term,
                who=event.who, cause=event.id, fault=event.fault, issued_ns=now_ns,
                deadline_ns=now_ns + (_BACK_NS if take_back else _MOVE_NS), moves=tuple(own), take_back=take_back,
                advice=advice, evidence=evidence or {},
            )  # fmt: skip
            self._open[order.id] = _Open(order, now_ns + _AGAIN_NS)
            made += self._give(order, now_ns)
        return made

    def greet(self, rail: str, term: int, now_ns: int) -> list[Decision]:
        """Tells all shards who coordinates a rail: none takes orders of a former coordinator after that."""
        made: list[Decision] = []
        for shard in self._coordination.shards:
            order = MoveOrder(
                id=f"{rail}/{term}/{shard}", shard=shard, rail=rail, term=term, who=rail, cause="", issued_ns=now_ns,
                deadline_ns=now_ns + _MOVE_NS,
            )  # fmt: skip
            made += self._give(order, now_ns)
        return made

    def again(self, now_ns: int) -> list[Decision]:
        """Gives again what was not answered."""
        made: list[Decision] = []
        for each in [each for each in self._open.values() if each.again_ns <= now_ns <= each.order.deadline_ns]:
            each.again_ns = now_ns + _AGAIN_NS
            made += self._give(each.order, now_ns)
        return made

    def settle(self, answer: MoveAnswer) -> MoveOrder | None:
        """Takes out the order that was answered; None: there is none that the answer fits."""
        known = self._open.get(answer.order)
        if known is None or known.order.shard != answer.shard or len(known.order.moves) != len(answer.statuses):
            return None
        del self._open[answer.order]
        return known.order

    def overdue(self, now_ns: int) -> list[MoveOrder]:
        """Takes out the orders that will not be answered any more."""
        late = [each.order for each in self._open.values() if now_ns > each.order.deadline_ns + _PATIENCE_NS]
        for order in late:
            del self._open[order.id]
        return late

    def drop(self, rail: str | None = None) -> None:
        """Forgets the orders for a rail, or all of them: another coordinates it."""
        self._open = {} if rail is None else {key: each for key, each in self._open.items() if each.order.rail != rail}

    # -- inside -------------------------------------------------------------------------------------------------------

    def _give(self, order: MoveOrder, now_ns: int) -> list[Decision]:
        """Gives an order to who holds the shard's lease: to this process, or by a message."""
        is_own = order.shard == self._coordination.role and self._decider.lease
        if is_own or not self._coordination.is_shared:
            return self._mover.take(order, now_ns)
        self._coordination.send(order)
        return []
