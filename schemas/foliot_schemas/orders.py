"""Orders of commands: a type of order for each verb, and the register of all types that a process knows.

An order is a frozen struct whose tag is its verb (``tag="mark", tag_field="verb"``). On the wire it is a map of plain
values. So a reader that does not know the verb can pass it on, show it, and refuse it by name.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from foliot_schemas.bounds import Count, Name, Text, Word
from foliot_schemas.placement import SERVICE_ADDRESSES, Placement, Rails

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERB = "^[a-z][a-z0-9-]*$"
Verb = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=_VERB)]
"""The verb of an order: `reroute`, `restore`, or one that an extension has registered. More will come."""
Order: TypeAlias = msgspec.Struct
"""Any registered type of order."""
Action = Annotated[dict[Word, Any], msgspec.Meta(max_length=64)]
"""An order on the wire: its fields by name, and its verb as `verb`. The type is open, because a reader need
not know the verb. The AsyncAPI document names the orders of Foliot's own verbs."""

_TAG_FIELD = "verb"
_DEEPEST = 8
_MOST_VALUES = 1 << 16
"""As many values as the largest command has: a placement for each of some thousand peers on two rails."""
_LONGEST_TEXT = 4_096
_INT64 = 1 << 63


class OrderError(ValueError):
    """An order cannot be read: this process does not know its verb, or its fields are not those of the verb."""


class Reroute(msgspec.Struct, frozen=True, kw_only=True, tag="reroute", tag_field=_TAG_FIELD):
    """Send traffic around trouble."""

    traffic: Word = SERVICE_ADDRESSES
    """The class of traffic, which names the actuator that moves it."""
    away: Rails = ()
    """Rails whose own NIC is lost. All their service traffic takes the armed backups, by one rule for each rail."""
    back: Rails = ()
    """Rails whose own NIC is to be used again."""
    placements: tuple[Placement, ...] = ()
    """Single destinations to be moved."""


class Restore(msgspec.Struct, frozen=True, kw_only=True, tag="restore", tag_field=_TAG_FIELD):
    """Send traffic the former way."""

    traffic: Word = SERVICE_ADDRESSES
    """The class of traffic, which names the actuator that moves it."""
    away: Rails = ()
    """Rails whose own NIC is lost. All their service traffic takes the armed backups, by one rule for each rail."""
    back: Rails = ()
    """Rails whose own NIC is to be used again."""
    placements: tuple[Placement, ...] = ()
    """Single destinations to be moved."""


class RankChange(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a job that one process loses and another takes. A process is named as in `WorkerState`."""

    rank: Count
    """The rank, in the job."""
    node: Name
    """The node of the one that loses it."""
    process: Count
    """The process that loses it."""
    to_node: Name
    """The node of the one that takes it."""
    to_process: Count
    """The process that takes it."""


class ReplaceRank(msgspec.Struct, frozen=True, kw_only=True, tag="replace-rank", tag_field=_TAG_FIELD):
    """Give ranks of a job to spares, or form its group anew. Every node with a process of the job is told the same."""

    job: Name
    """The job."""
    generation: Count
    """The number of the process group that all ranks form next, higher than any before."""
    meet: Text
    """Address and port of the store at which they meet: that of a rank that stays."""
    at_step: Count = 0
    """Leave the present group when this many steps are done: nothing is lost then. 0: at once."""
    cause: Word
    """Why: a state of the events `hang` and `straggler`, or `drain`, or `hardware`."""
    changes: Annotated[tuple[RankChange, ...], msgspec.Meta(max_length=1_024)]
    """Who loses which rank to whom. None: the group broke, and the same processes form one anew."""

    def check(self) -> None:
        """Refuses an order that contradicts itself.

        Raises:
            ValueError: a rank or a process changes twice.
        """
        losing = {(each.node, each.process) for each in self.changes}
        taking = {(each.to_node, each.to_process) for each in self.changes}
        if not len({each.rank for each in self.changes}) == len(losing | taking) / 2 == len(self.changes):
            raise ValueError(f"a rank or a process of {self.job} changes twice")


BUILT_IN: tuple[type[Order], ...] = (Reroute, Restore, ReplaceRank)
_registered: dict[str, type[Order]] = {}


def verb_of(order: Order | type[Order]) -> str:
    """The verb of an order or of a type of order."""
    return str(order.__struct_config__.tag)


def register(kind: type[Order]) -> None:
    """Makes a type of order known to this process. The same type twice is registered once.

    Raises:
        ValueError: it is not frozen, its tag is no verb, or the verb has another type.
    """
    config = kind.__struct_config__
    if not config.frozen or config.tag_field != _TAG_FIELD or not re.match(_VERB, str(config.tag)):
        raise ValueError(f'{kind.__name__} must be frozen, with tag_field="verb" and a verb as its tag')
    if _registered.setdefault(verb_of(kind), kind) is not kind:
        raise ValueError(f"the verb {verb_of(kind)} has a type of order: {_registered[verb_of(kind)].__name__}")


def forget(kind: type[Order]) -> None:
    """Takes back `register`. A verb of Foliot's own stays."""
    if kind not in BUILT_IN and _registered.get(verb_of(kind)) is kind:
        del _registered[verb_of(kind)]


def find(verb: str) -> type[Order] | None:
    """The type of a verb's orders; None: this process does not know the verb."""
    return _registered.get(verb)


def read(action: Mapping[str, Any]) -> Order:
    """The order in a message's `action`.

    Raises:
        OrderError: this process does not know its verb, or a field is not what the verb's type says.
    """
    verb = action.get(_TAG_FIELD)
    kind = _registered.get(verb) if isinstance(verb, str) else None
    if kind is None:
        raise OrderError(f"the verb {verb} is not known here; known are {', '.join(sorted(_registered))}")
    try:
        order = msgspec.convert(action, kind)
        if (check := getattr(order, "check", None)) is not None:
            check()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise OrderError(f"the order is no {verb}: {str(error)[:512]}") from error
    return order


def write(order: Order) -> dict[str, Any]:
    """The order in its form on the wire."""
    plain: dict[str, Any] = msgspec.to_builtins(order)
    return plain


def check_action(action: Mapping[str, Any], verb: str) -> None:
    """Refuses an action that no order of any type can have.

    Raises:
        ValueError: its verb is not the message's, or a value is none that JSON has, too long, too deep, or one of too
            many.
    """
    if action.get(_TAG_FIELD) != verb:
        raise ValueError(f"its verb is {verb}, its action says {str(action.get(_TAG_FIELD))[:64]}")
    waiting: list[tuple[Any, int]] = [(action, 0)]
    seen = 0
    while waiting:
        value, depth = waiting.pop()
        seen += 1
        if seen > _MOST_VALUES or depth > _DEEPEST:
            raise ValueError("its action has too many values, or they lie too deep")
        if isinstance(value, dict):
            waiting += [(each, depth + 1) for pair in value.items() for each in pair]
            if not all(isinstance(name, str) for name in value):
                raise ValueError("its action has a field whose name is no text")
        elif isinstance(value, list):
            waiting += [(each, depth + 1) for each in value]
        elif not _is_plain(value):
            raise ValueError(f"its action has a value that is not plain: {type(value).__name__}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and -_INT64 <= value < _INT64)


for _kind in BUILT_IN:
    register(_kind)
