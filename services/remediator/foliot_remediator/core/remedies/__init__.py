"""The remedies: each module of this folder is one of Foliot's own, is loaded, and registers it.

Extensions register theirs.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

from foliot_remediator.core.actions import remedy
from foliot_remediator.core.state.routing_table import FIRST

if TYPE_CHECKING:
    from foliot_remediator.core.actions.fleet_view import FleetView
    from foliot_remediator.core.actions.remedy import Remedy


def made(view: FleetView) -> list[Remedy]:
    """One of each, made for this fleet, in the order in which they are asked.

    Raises:
        ValueError: a priority is none.
    """
    remedies = [make(view) for make in remedy.registered.values()]
    for each in remedies:
        priority, least = getattr(each, "priority", None), 0 if each.name == FIRST else 1
        if type(priority) is not int or priority < least:
            said = f"its priority must be a whole number, 1 or more, since losses have 0: got {priority!r}"
            raise ValueError(f"the remedy {each.name}: {said}")
    return sorted(remedies, key=lambda each: (each.priority, each.name))


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
