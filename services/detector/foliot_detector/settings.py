"""``[detector]``: when something is a fault. The table is flat; what is in it stands beside the detector that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from foliot_detector.core.registry import DETECTORS
from foliot_detector.core.state.settings import ObservationSettings

Part = TypeVar("Part", bound=msgspec.Struct)

PARTS: tuple[type[msgspec.Struct], ...] = (
    ObservationSettings,
    *(maker.settings for maker in DETECTORS.values() if maker.settings is not None),
)
"""The structs whose fields the table has."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gives each part its own."""

    def __post_init__(self) -> None:
        """Refuses numbers that contradict each other.

        Raises:
            ValueError: they do; the message names the key.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and value <= 0:
                raise ValueError(f"{name}: must be above 0, got {value}")
        for part in PARTS:
            self.of(part)

    def of(self, part: type[Part]) -> Part:
        """The settings of one part, by its struct."""
        return part(**{name: getattr(self, name) for name in part.__struct_fields__})


if TYPE_CHECKING:

    class DetectorSettings(_Table, frozen=True):
        """``[detector]`` of the settings: the fields of all `PARTS`."""

        def __init__(self, **values: object) -> None: ...

else:
    _fields = [(field.name, field.type, field.default) for part in PARTS for field in msgspec.structs.fields(part)]
    DetectorSettings = msgspec.defstruct(
        "DetectorSettings", _fields, bases=(_Table,), module=__name__, frozen=True, kw_only=True, forbid_unknown_fields=True
    )  # fmt: skip
