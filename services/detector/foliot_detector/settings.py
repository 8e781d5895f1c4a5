"""``[detector]``: when something is a fault."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from foliot_detector.flap_rules import PRESETS, FlapRule, RuleName

_NUMBERS = ("penalty", "half_life_s", "half_life_down_s", "suppress", "reuse", "max_suppress_s", "hold_s")


class DetectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The detector's own section. Detectors find it at the inventory."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {
            "alive_ms", "congestion_ms", "stale_s", "path_settle_ms", "proof_transit_ms", "common_mode_ms", "arrival_margin_ms",
            "deaf_hold_ms", "recovery_s", "burst_ms", "speaking_hold_ms", "lossy_share", "lossy_sent", "lossy_lost",
            "lossy_nic_share", "full_size_lost", "lossless_sent",
        }
    )  # fmt: skip

    report_ms: float = 100.0
    """The shortest interval that the detector takes a node's regular reports to have. Nodes of an earlier version do
    not say theirs (`probe.delay_interval_ms`), so it is this one. A node that leaves out a report was itself away."""
    process_silence_s: float = 1.0
    """A process is dead if neither probes nor messages came from it for this long. It has two and a half intervals
    of its reports if that is more. One whose words had gaps lately has up to three times as long."""
    late_silence_s: float = 1.0
    """A path not heard for this long is silent although nobody said so at once. The default is five probes of the
    slow sweep."""
    calm_s: float = 60.0
    """A path that falls silent within this time after the last silence has to speak twice as long before it is said to."""
    flap_rule: RuleName = "cisco"
    """The rule by which ports are said to flap, so that they are held back: see
    `foliot_detector.flap_rules` and docs/failover.md. The first six are dampings (RFC 2439), the
    others count. The numbers below, where given, replace the rule's own."""
    penalty: float | None = None
    """A number of dampings, as are the next five."""
    half_life_s: float | None = None
    half_life_down_s: float | None = None
    suppress: float | None = None
    reuse: float | None = None
    max_suppress_s: float | None = None
    hold_s: float | None = None
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
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and value <= 0:
                raise ValueError(f"{name}: must be above 0, got {value}")
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
