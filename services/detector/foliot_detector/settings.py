"""``[detector]``: one flat table, composed of the settings that lie beside the inventory and the detectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from foliot_detector.core.registry import SETTINGS

if TYPE_CHECKING:  # mypy follows no class that is made at run time
    _Composed = msgspec.Struct
else:
    _FIELDS = [
        (field.name, field.type, msgspec.field(default=field.default, default_factory=field.default_factory))
        for kind in SETTINGS
        for field in msgspec.structs.fields(kind)
    ]
    _Composed = msgspec.defstruct("_Composed", _FIELDS, frozen=True, kw_only=True)


class DetectorSettings(_Composed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When something is a fault."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {
            "alive_ms", "congestion_ms", "stale_s", "path_settle_ms", "proof_transit_ms", "common_mode_ms",
            "arrival_margin_ms",
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
