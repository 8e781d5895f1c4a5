"""Of ``[detector]``: what observations mean, whoever judges by them."""

from __future__ import annotations

import msgspec


class ObservationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the inventory and more than one detector go by; `Inventory.settings` has them."""

    report_ms: float = 100.0
    """The least that the interval of a node's regular reports is taken for; also of nodes of an earlier version, whose reports do not say which it is (`probe.delay_interval_ms`). A node that leaves out a report was itself away."""
    process_silence_s: float = 1.0
    """A process from which nothing at all came for this long, or for two and a half intervals of its reports if that is more, neither probes nor messages, is dead; one whose words had gaps lately is given up to three times as long."""
    alive_ms: float = 500.0
    """A sender that was heard elsewhere for this long, without a break of half of it, has sent on every path it probes: two
    intervals of the slow sweep, and some. Its own word that it sent on the path needs no such wait."""
    late_silence_s: float = 1.0
    """A path not heard for this long is silent although nobody said so at once: five probes of the slow sweep."""
    congestion_ms: float = 5.0
    """Delays that stand this far above the path's least mean a full queue: loss is then congestion, no fault."""
    stale_s: float = 2.0
    """A batch that is older than the node's newest by more is dropped."""
