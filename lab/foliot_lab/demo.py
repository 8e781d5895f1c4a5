"""The built-in scenario, for as many hosts as the machine carries.

On a smaller fabric, its faults fall on the corresponding hosts.
"""

from __future__ import annotations

import importlib.resources
import re
from typing import TYPE_CHECKING

import msgspec

from foliot_lab.scenario.reading import parse_scenario

if TYPE_CHECKING:
    from foliot_lab.scenario.spec import Scenario

SIZES = (8, 4, 2)
"""Numbers of hosts, the largest first: as described, then halves of it."""
_HOST = re.compile(r"\bnode(\d+)")


def demo(hosts: int = SIZES[0]) -> Scenario:
    """The scenario for a fabric of so many hosts, at most as many as it is described for.

    A fault on a host falls on the host at the same relative position: of eight hosts the sixth, of four the third.
    """
    described = parse_scenario(importlib.resources.files("foliot_lab").joinpath("demo.toml").read_text(), "demo.toml")
    there_are = described.fabric.hosts

    def where(name: str) -> str:
        return _HOST.sub(lambda found: f"node{int(found[1]) * hosts // there_are}", name)

    return msgspec.structs.replace(
        described,
        fabric=msgspec.structs.replace(described.fabric, hosts=hosts),
        faults=tuple(msgspec.structs.replace(fault, where=where(fault.where)) for fault in described.faults),
    )
