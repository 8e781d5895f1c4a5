"""``[agent]``: how far the agent may go."""

from __future__ import annotations

from typing import Literal

import msgspec

ActuatorKind = Literal["overlay", "emulated"]
Armed = Literal["off", "bus-away", "always"]
Policy = Literal["off", "advise", "act"]

_LEAST_KEY = 16
"""Characters; RFC 2104 (HMAC) advises against keys shorter than the security that one hopes for."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent's own section; who the node is stands in ``[node]``."""

    actuator: ActuatorKind = "overlay"
    """``emulated`` records what would be done and touches nothing."""
    armed: Armed = "off"
    """Whether the node moves its traffic by itself when it loses a carrier: never, while the bus is away, or always."""
    policy: Policy = "act"
    """``off`` refuses every command, ``advise`` answers what it would do, ``act`` does it. Arms nothing unless ``act``."""
    memory: str = "/run/foliot"
    """Folder in which it remembers over a restart what it needs while the bus is away; it should not outlive the boot. Empty: it does not."""
    key: str = ""
    """Shared by the fleet's agents; authenticates what they tell each other without the bus. Needed to be armed."""

    def __post_init__(self) -> None:
        """Refuses to be armed without a key."""
        if self.armed != "off" and len(self.key) < _LEAST_KEY:
            raise ValueError(
                f"field `key` must have at least {_LEAST_KEY} characters, the same on every node, "
                f"because agent.armed is {self.armed!r} and notices between agents are authenticated with it",
            )
