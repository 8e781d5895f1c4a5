"""The settings of ports that flap: a rule by its name, and the numbers that replace its own."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_detector.flap_rules import PRESETS, FlapRule, RuleName

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NUMBERS = ("penalty", "half_life_s", "half_life_down_s", "suppress", "reuse", "max_suppress_s", "hold_s")


class PortFlapSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about ports."""

    flap_rule: RuleName = "cisco"
    """The rule by which ports are said to flap, so that they are held back: see
    `foliot_detector.flap_rules` and docs/failover.md. The first six are dampings (RFC 2439), the
    others count. The numbers below, where given, replace the rule's own."""
    penalty: _Positive | None = None
    """A number of dampings, as are the next five."""
    half_life_s: _Positive | None = None
    half_life_down_s: _Positive | None = None
    suppress: _Positive | None = None
    reuse: _Positive | None = None
    max_suppress_s: _Positive | None = None
    hold_s: _Positive | None = None
    """A number of rules that count: how long a port that was found to flap is held back at least, after its last
    flap."""
    management_nics: Literal["leave-out", "judge"] = "leave-out"
    """Whether the detector judges management ports as it judges the fabric's. A node's probe finds them: they hold
    its way to the bus or its default route."""

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
        preset = PRESETS[self.flap_rule]
        replaced = {name: value for name in _NUMBERS if (value := getattr(self, name)) is not None}
        for name in replaced:
            if name not in preset.__struct_fields__:
                raise ValueError(f"{name}: is no number of flap_rule {self.flap_rule}, leave it out")
        return msgspec.structs.replace(preset, **replaced)
