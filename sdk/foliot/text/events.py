"""Events in plain words: one sentence each, the same on the lab's terminal and on the live page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_schemas import Event

_SENTENCES = {
    ("flap", "down"): "{who} lost its carrier",
    ("flap", "up"): "{who} has its carrier back",
    ("flap", "admin-down"): "{who} was set down by an administrator",
    ("flap", "admin-up"): "{who} was set up by an administrator",
    ("path", "silent"): "nothing arrives any more on {who}",
    ("path", "lossy"): "{who} loses packets",
    ("path", "speaking"): "{who} is heard again",
    ("nic", "lossy"): "{who} loses some of its packets",
    ("nic", "sound"): "{who} loses none of its packets any more",
    ("process", "dead"): "{who} is dead or stalled; its paths are not blamed",
    ("process", "alive"): "{who} is alive again",
    ("clock", "disrupted"): "the clock {who} cannot be trusted",
    ("clock", "synchronised"): "the clock {who} can be trusted again",
    ("refusal", "refused"): "nothing is moved for {who}",
}


def sentence(event: Event, who: str = "") -> str:
    """What an event says, with the few numbers that a person wants at a glance.

    Parameters:
        who: in place of the event's own, where several are told together.
    """
    return headline(event, who) + _evidence(event)


def headline(event: Event, who: str = "") -> str:
    """As `sentence`, without any numbers."""
    return told(event.kind, event.state, who or event.who)


def told(kind: str, state: str, who: str) -> str:
    """As `headline`, of an event of which no more is known."""
    words = _SENTENCES.get((kind, state), f"{kind} {state}: {{who}}")
    return words.replace("{who}", who)


def losing(event: Event) -> str:
    """What a NIC loses, by an event that says that it does."""
    what = {"out": "what it sends", "in": "what is sent to it"}.get(str(event.evidence.get("direction")), "its packets")
    return f"loses {event.number('loss_share'):.1%} of {what}"


def _evidence(event: Event) -> str:
    known = event.evidence
    if event.kind == "refusal":
        return f": {event.policy}" + (f" ({known['reason']})" if "reason" in known else "")
    if event.kind == "nic" and event.state == "lossy":
        return f" ({losing(event).removeprefix('loses ')})"
    if event.kind == "path" and known.get("full_size_lost"):
        return f" (none as large as {event.number('bytes'):,.0f} bytes arrives, others do)"
    if event.kind == "flap" and event.state in {"up", "down"} and "penalty" in known:
        damped = ", damped" if known.get("suppressed") else ""
        return f" (penalty {known['penalty']:.0f}{damped})"
    if event.kind == "flap" and event.state in {"up", "down"} and known.get("suppressed"):
        return f" (held back: it flaps, by the rule {known.get('rule', '?')})"
    return ""
