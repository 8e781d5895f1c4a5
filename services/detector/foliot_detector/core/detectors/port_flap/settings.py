"""Of ``[detector]``: which ports flap."""

from __future__ import annotations

from typing import Literal

import msgspec

from foliot_detector.flap_rules import PRESETS, FlapRule, RuleName

_NUMBERS = ("penalty", "half_life_s", "half_life_down_s", "suppress", "reuse", "max_suppress_s", "hold_s")


class PortFlapSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `PortFlapDetector` goes by."""

    flap_rule: RuleName = "cisco"
    """Which ports are said to flap, so that they are held back: see `foliot_detector.core.detectors.port_flap.judge` and docs/failover.md. The first six are
    dampings (RFC 2439), the others count. What follows, where given, replaces the rule's own numbers."""
    penalty: float | None = None
    """Of dampings, as the next five."""
    half_life_s: float | None = None
    half_life_down_s: float | None = None
    suppress: float | None = None
    reuse: float | None = None
    max_suppress_s: float | None = None
    hold_s: float | None = None
    """Of rules that count: how long what was found to flap is held back at least, after its last flap."""
    management_nics: Literal["leave-out", "judge"] = "leave-out"
    """Whether a port that a node's probe found to be its way to the bus or its default route is judged as the fabric's are."""

    def __post_init__(self) -> None:
        """Refuses numbers that contradict each other.

        Raises:
            ValueError: they do; the message names the key.
        """
        self.rule()

    def rule(self) -> FlapRule:
        """The rule: the preset, with what the settings replace.

        Raises:
            ValueError: the numbers contradict each other, or are none of this rule's.
        """
        preset = PRESETS[self.flap_rule].rule
        replaced = {name: value for name in _NUMBERS if (value := getattr(self, name)) is not None}
        for name in replaced:
            if name not in preset.__struct_fields__:
                raise ValueError(f"{name}: is no number of flap_rule {self.flap_rule}, leave it out")
        return msgspec.structs.replace(preset, **replaced)
