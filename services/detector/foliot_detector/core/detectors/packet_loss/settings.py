"""Of ``[detector]``: when a path or a NIC loses too much."""

from __future__ import annotations

import msgspec


class PacketLossSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `PathLossDetector` goes by, beside `ObservationSettings`."""

    lossy_share: float = 0.05
    lossy_sent: int = 200
    """Probes that a judgement of loss rests on: eight seconds of a path in use."""
    lossy_lost: int = 10
    """Lost ones that it takes at least; where so many are lost here and there, the judgement waits for no more."""
    lossy_nic_share: float = 0.005
    """Of all that is sent to a NIC, or by it, while no queue is full. TCP over a path of some milliseconds suffers from that already."""
    full_size_lost: int = 8
    """Probes of full size lost in a row, while others arrive and no queue at either NIC was full lately, that show a link which passes only smaller packets: 1.3 s of a path in use. Where
    a tenth of all is lost here and there that is once in 100 million by chance. As many in a row show that it passes them again."""
    lossless_sent: int = 75
    """A lossy path speaks again after so many without a loss: 15 s of the slow sweep. At 5 % loss that is once in 47 by chance."""

    def __post_init__(self) -> None:
        """Refuses what is no share.

        Raises:
            ValueError: it is none; the message names the key.
        """
        for name in ("lossy_share", "lossy_nic_share"):
            if (share := getattr(self, name)) >= 1:
                raise ValueError(f"{name}: is a share, below 1, got {share}")
