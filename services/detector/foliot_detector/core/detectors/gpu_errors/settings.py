"""The settings of GPU errors: what a site makes of some of them."""

from __future__ import annotations

import msgspec

from foliot_detector.core.detectors.gpu_errors.xids import IGNORED, XIDS, Consequence, Severity

_LAST = (1 << 16) - 1


class GpuErrorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about errors of GPUs."""

    xid: dict[str, Severity] = {}
    """What follows from errors of NVIDIA's GPUs, by their number (XID), where a site wants it otherwise than
    `foliot_detector.core.detectors.gpu_errors.xids`: ``{ "31" = "failed", "74" = "ignore" }``. After ``failed``, ranks
    that can be replaced leave the node at once, and after ``degraded`` at the end of a step, as `remediator.replace`
    permits. After ``ignore``, nothing follows."""

    def __post_init__(self) -> None:
        """Refuses what is no number of an error.

        Raises:
            ValueError: it is none; the message names the key.
        """
        self.consequences()

    def consequences(self) -> dict[int, Consequence]:
        """What follows from each kind of error, by its number; of what is not there, nothing.

        Raises:
            ValueError: a key is no number of an error.
        """
        made = dict(XIDS)
        for number, severity in self.xid.items():
            if not (number.isascii() and number.isdecimal() and int(number) <= _LAST):
                raise ValueError(f"xid: {number!r} is no number of an error, give one from 0 to {_LAST} in quotes")
            made[int(number)] = made.get(int(number), IGNORED)._replace(severity=severity)
        return {number: each for number, each in made.items() if each.severity != "ignore"}
