"""Kinds of event: what is registered, what is refused, and what nobody has registered."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from foliot_schemas import Event, EventKind, decode, encode, event_kinds
from foliot_schemas.codec import WireError
from foliot_schemas.event_kinds import EventState
from foliot_schemas.page_types import typescript

PAGE = Path(__file__).parents[2] / "services" / "gateway" / "web" / "src" / "event_kinds.ts"

HEAT = EventKind(
    name="heat", concerns="nic", summary="a NIC",
    states=(EventState("hot", "{who} is hot"), EventState("cool", "{who} is cool", is_relief=True))
)  # fmt: skip


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    monkeypatch.setattr(event_kinds, "_KINDS", dict(event_kinds._KINDS))


def event(kind, state, who="node3.rail0"):
    """An event."""
    return Event(id="e", kind=kind, who=who, state=state, at_ns=1, since_ns=1)


def test_foliots_own_are_there():
    """In the order in which documents tell of them, each with the service that says it."""
    assert event_kinds.kinds() == event_kinds.BUILT_IN
    assert [kind.name for kind in event_kinds.published_by("remediator")] == ["refusal"]
    assert "flap" in [kind.name for kind in event_kinds.published_by("detector")]


def test_a_kind_is_registered_once():
    """The same record again changes nothing: a module may be loaded by several who share a process."""
    event_kinds.register(HEAT)
    event_kinds.register(HEAT)
    assert event_kinds.kinds()[-1] is event_kinds.find("heat") is HEAT


def test_a_name_that_is_taken_is_refused():
    """Also where an extension would take one of Foliot's own."""
    with pytest.raises(ValueError, match="there is a kind of event named flap already"):
        event_kinds.register(msgspec.structs.replace(HEAT, name="flap"))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": ""}, "a name has 1 to 64 characters"),
        ({"name": "h" * 65}, "a name has 1 to 64 characters"),
        ({"states": ()}, "it needs states, each once"),
        ({"states": (*HEAT.states, *HEAT.states)}, "it needs states, each once"),
        ({"states": (EventState("hot", "it is hot"),)}, "the sentence of hot does not say {who}"),
    ],
)
def test_a_kind_that_could_not_be_told_is_refused(changed, why):
    """When the record is made, and not when its first event comes."""
    with pytest.raises(ValueError, match=why):
        msgspec.structs.replace(HEAT, **changed)


@pytest.mark.parametrize("kind", event_kinds.BUILT_IN, ids=lambda kind: kind.name)
def test_each_of_foliots_own_has_its_trouble_before_its_end(kind):
    """So that a table of states reads as a trouble goes."""
    assert not kind.states[0].is_relief


@pytest.mark.parametrize(
    ("kind", "state", "relief", "detects"),
    [
        ("path", "silent", False, True),
        ("path", "speaking", True, False),
        ("nic", "sound", True, False),
        ("refusal", "refused", False, False),
        ("path", "later", False, True),
        ("quake", "up", False, True),
    ],
)
def test_what_begins_and_what_ends_a_trouble(kind, state, relief, detects):
    """A kind or state that nobody has registered ends none, whatever its name is elsewhere."""
    told = event(kind, state, who="a.x>b.x#0")
    assert (event_kinds.is_relief(told), event_kinds.detects(told)) == (relief, detects)


def test_a_message_of_an_unknown_kind_decodes():
    """Such kinds come from a newer sender, or from an extension."""
    told = event("quake", "shaking", who="anybody at all")
    assert decode(encode(told), Event) == told


@pytest.mark.parametrize("kind", ["", "k" * 65])
def test_a_kind_is_a_word(kind):
    """Within what a subject and a series of counts can hold."""
    with pytest.raises(WireError):
        decode(encode(event(kind, "x")), Event)


def test_of_a_kind_about_paths_the_path_is_checked(monkeypatch):
    """Also of an extension's."""
    late = msgspec.structs.replace(HEAT, name="late", concerns="path")
    assert decode(encode(event("late", "hot", who="nonsense")), Event)
    event_kinds.register(late)
    with pytest.raises(WireError, match="not a path"):
        decode(encode(event("late", "hot", who="nonsense")), Event)


def test_the_page_has_the_kinds_that_there_are():
    """Regenerate its types by ``make asyncapi``."""
    assert PAGE.read_text() == typescript()
