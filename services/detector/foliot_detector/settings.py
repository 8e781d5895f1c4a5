"""``[detector]``: when something is a fault, and where each number comes from."""

from __future__ import annotations

from typing import Literal

import msgspec

from foliot_detector.flap_rules import PRESETS, FlapRule, RuleName

_NUMBERS = ("penalty", "half_life_s", "half_life_down_s", "suppress", "reuse", "max_suppress_s", "hold_s")


class DetectorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[detector]`` of the settings."""

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

    path_settle_ms: float = 15.0
    """How long a silence waits for a word of the ports at its ends: the kernel's link message takes a few milliseconds to get
    here, and one cause makes one event."""
    proof_transit_ms: float = 40.0
    """How long a probe whose sending is proven has to be heard: the fullest queues of a path (200 packets of 1,500 bytes at
    200 Mb/s are 12 ms, and it has two of them), and a turn of the scheduler at each end. Twice the longest delay that either end saw lately, if that is more.
    A receiver dates its word by when it read its sockets dry, so that nothing is added for that."""
    common_mode_ms: float = 500.0
    """How long a silence waits where nothing else came through between its two hosts since: they may both be stalled. A busy hypervisor halts a machine for up to 0.4 s at a time."""
    alive_ms: float = 500.0
    """A sender that was heard elsewhere for this long, without a break of half of it, has sent on every path it probes: two
    intervals of the slow sweep, and some. Its own word that it sent on the path needs no such wait."""
    arrival_margin_ms: float = 30.0
    """By how much two nodes' messages, compared by their arrival here, may be wrong about what came first."""
    deaf_hold_ms: float = 100.0
    """How long a receiver that hears nobody at all may take to read what waits in its sockets."""
    late_silence_s: float = 1.0
    """A path not heard for this long is silent although nobody said so at once: five probes of the slow sweep."""
    recovery_s: float = 1.0
    """How long a NIC or process that came back may take until its paths speak."""
    burst_ms: float = 250.0
    """Silences of one rail that began within this have one cause: an interval of the slow sweep, and some."""
    speaking_hold_ms: float = 200.0
    """How long a path must speak before it is said to: longer than the silence time of a path in use, so that one that
    falls silent again at once is still the same silence. Doubled with each silence that follows within `calm_s`."""
    calm_s: float = 60.0

    report_ms: float = 100.0
    """The least that the interval of a node's regular reports is taken for; also of nodes of an earlier version, whose reports do not say which it is (`probe.delay_interval_ms`). A node that leaves out a report was itself away."""
    process_silence_s: float = 1.0
    """A process from which nothing at all came for this long, or for two and a half intervals of its reports if that is more, neither probes nor messages, is dead; one whose words had gaps lately is given up to three times as long."""

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
    congestion_ms: float = 5.0
    """Delays that stand this far above the path's least mean a full queue: loss is then congestion, no fault."""

    stale_s: float = 2.0
    """A batch that is older than the node's newest by more is dropped."""

    def __post_init__(self) -> None:
        """Refuses numbers that contradict each other.

        Raises:
            ValueError: they do; the message names the key.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and value <= 0:
                raise ValueError(f"{name}: must be above 0, got {value}")
        for name in ("lossy_share", "lossy_nic_share"):
            if (share := getattr(self, name)) >= 1:
                raise ValueError(f"{name}: is a share, below 1, got {share}")
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
