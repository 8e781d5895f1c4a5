"""The trace of a move: which services act on whose word in it."""

from __future__ import annotations

import time

from foliot_schemas.fault import trace_id
from patience import patience

EDGES = {
    # Armed agents have moved before anybody could command them; the way back is commanded.
    "off": {("probe", "detector"), ("detector", "remediator"), ("remediator", "agent"), ("agent", "gateway")},
    "always": {
        ("probe", "detector"),
        ("probe", "agent"),
        ("agent", "agent"),
        ("remediator", "agent"),
        ("agent", "gateway"),
    },
}
"""By `armed`, the services from which and to which the trace goes on."""


def wanted(event, armed):
    """The edges of an event's trace. Nobody tells of a silence before the detector."""
    return {edge for edge in EDGES[armed] if event.endswith("down") or edge[0] != "probe"}


def edges(spans):
    """From which service to which the trace goes on."""
    by_id = {span["span_id"]: span for span in spans}
    return {(by_id[span["parent_id"]]["service"], span["service"]) for span in spans if span.get("parent_id") in by_id}


def trace_of_the_move(lab, armed):
    """The event of a lab's first fault whose trace has the move, the edges that it lacks, and its spans.

    The event is the kernel's link message: of a lost carrier, or of a port that was set down. Where the probe that
    tells of the link stood still, a path's silence may come before it, and either may be what moved the traffic. Spans
    come in batches, and not those of all services at once, so it waits for them.
    """
    opening = [event for event in lab.report["faults"][0]["events"] if event.endswith(("down", "/silent"))]
    assert opening, lab.said
    opening.sort(key=lambda event: event.endswith("/silent"))
    deadline_s = time.monotonic() + patience(20)
    while True:
        for event in opening if armed == "off" else opening[:1]:
            spans = lab.get(f"traces/{trace_id(event.rpartition('/')[0]):032x}")["spans"]
            lacks = wanted(event, armed) - edges(spans)
            if (not lacks and any("confirm" in span["name"] for span in spans)) or time.monotonic() > deadline_s:
                return event, lacks, spans
        time.sleep(0.2)
