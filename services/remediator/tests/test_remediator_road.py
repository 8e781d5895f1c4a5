"""The main road: a fault's events in, commands to exactly the nodes concerned out, and everything back in the end."""

from __future__ import annotations

from conftest_remediator import SECOND, World

from foliot_schemas import Outcome, Placement
