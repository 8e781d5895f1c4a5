"""A host whose kernel tells of one port."""

from __future__ import annotations

import msgspec

from foliot_detector.core.pipeline import Pipeline

NIC = "node3.rail0"
T = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
LOST = {"carrier": False}
ADMIN_DOWN = {"carrier": False, "admin_up": False}


class Kernel:
    """What a host's kernel says of one device, message after message, a second apart; and what is made of it."""

    def __init__(self, make_node, make_port, settings):
        self._make_port = make_port
        self.rule = settings.flap_rule
        self.detector = Pipeline(settings)
        self.detector.observe(make_node("node3"))
        self.seconds = 0
        self.events = []

    def says(self, downs, ups, *, index=7, link_downed=None, management=False, **state):
        """A message; returns the events."""
        self.seconds += 1
        port = self._make_port(NIC, T + self.seconds * SECOND_NS, downs, ups, **state)
        counters = {} if link_downed is None else {"link_downed": link_downed}
        port = msgspec.structs.replace(port, index=index, management=management, counters=counters)
        found = self.detector.observe(port)
        self.events += found
        return found

    @property
    def states(self):
        """Of all events so far."""
        return [event.state for event in self.events]

    @property
    def flaps(self):
        """Counted in all events so far."""
        return sum(event.evidence["flaps"] for event in self.events)

    @property
    def is_suppressed(self):
        """By the last event."""
        return bool(self.events) and self.events[-1].evidence["suppressed"]
