"""``[detector]``: one flat table, composed of the settings that lie beside the inventory and the detectors."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from foliot_detector.core.registry import SETTINGS

_FIELDS = [(field.name, field.type, field.default) for kind in SETTINGS for field in msgspec.structs.fields(kind)]


class DetectorSettings(  # type: ignore[call-arg] # mypy sees no struct in the base below.
    msgspec.defstruct("DetectorFields", _FIELDS, frozen=True, kw_only=True),  # type: ignore[misc] # Its fields are known when it runs.
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """When something is a fault."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {
            "alive_ms", "congestion_ms", "stale_s", "path_settle_ms", "proof_transit_ms", "common_mode_ms", "arrival_margin_ms",
            "deaf_hold_ms", "recovery_s", "burst_ms", "speaking_hold_ms", "lossy_share", "lossy_sent", "lossy_lost",
            "lossy_nic_share", "full_size_lost", "lossless_sent",
        }
    )  # fmt: skip
    kinds: ClassVar[tuple[type[msgspec.Struct], ...]] = SETTINGS

    def __post_init__(self) -> None:
        """Refuses what a part refuses.

        Raises:
            ValueError: one does; the message names the key.
        """
        self.parts()

    def parts(self) -> dict[type, Any]:
        """The settings of each part, by their type."""
        return {kind: kind(**{name: getattr(self, name) for name in kind.__struct_fields__}) for kind in SETTINGS}
