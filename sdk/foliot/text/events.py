"""Events in plain words: one sentence each, the same on the lab's terminal and on the live page.

The words are in the records of their kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas import event_kinds

if TYPE_CHECKING:
    from foliot_schemas import Event


def sentence(event: Event, who: str = "") -> str:
    """An event in words, with the few numbers that a person wants at a glance.

    Parameters:
        who: the names to use in place of the event's own, where several events are told together.
    """
    kind = event_kinds.find(event.kind)
    return headline(event, who) + (kind.words(event) if kind and kind.words else "")


def headline(event: Event, who: str = "") -> str:
    """As `sentence`, without any numbers."""
    return told(event.kind, event.state, who or event.who)


def told(kind: str, state: str, who: str) -> str:
    """As `headline`, for an event of which only this is known."""
    known = event_kinds.find(kind)
    known_state = known and known.state(state)
    words = known_state.sentence if known_state else f"{kind} {state}: {{who}}"
    return words.replace("{who}", who)
