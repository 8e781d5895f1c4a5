"""Of ``[detector]``: when a path is silent, and when it speaks again."""

from __future__ import annotations

import msgspec


class PathSilenceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `PathSilenceDetector` goes by, beside `ObservationSettings`."""

    path_settle_ms: float = 15.0
    """How long a silence waits for a word of the ports at its ends: the kernel's link message takes a few milliseconds to get
    here, and one cause makes one event."""
    proof_transit_ms: float = 40.0
    """How long a probe whose sending is proven has to be heard: the fullest queues of a path (200 packets of 1,500 bytes at
    200 Mb/s are 12 ms, and it has two of them), and a turn of the scheduler at each end. Twice the longest delay that either end saw lately, if that is more.
    A receiver dates its word by when it read its sockets dry, so that nothing is added for that."""
    common_mode_ms: float = 500.0
    """How long a silence waits where nothing else came through between its two hosts since: they may both be stalled. A busy hypervisor halts a machine for up to 0.4 s at a time."""
    arrival_margin_ms: float = 30.0
    """By how much two nodes' messages, compared by their arrival here, may be wrong about what came first."""
    deaf_hold_ms: float = 100.0
    """How long a receiver that hears nobody at all may take to read what waits in its sockets."""
    recovery_s: float = 1.0
    """How long a NIC or process that came back may take until its paths speak."""
    burst_ms: float = 250.0
    """Silences of one rail that began within this have one cause: an interval of the slow sweep, and some."""
    speaking_hold_ms: float = 200.0
    """How long a path must speak before it is said to: longer than the silence time of a path in use, so that one that
    falls silent again at once is still the same silence. Doubled with each silence that follows within `calm_s`."""
    calm_s: float = 60.0
