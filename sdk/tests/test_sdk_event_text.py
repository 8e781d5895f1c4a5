"""Events in plain words."""

import pytest

from foliot.text.events import sentence
from foliot.text.messages import is_bad
from foliot_schemas import Event


def event(kind, state, who="node3.rail0", **more):
    """An event."""
    return Event(id="e", kind=kind, who=who, state=state, at_ns=1, since_ns=1, **more)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (event("flap", "down"), "node3.rail0 lost its carrier"),
        (event("flap", "down", evidence={"penalty": 999.6}), "node3.rail0 lost its carrier (penalty 1000)"),
        (
            event("flap", "up", evidence={"rule": "azure", "suppressed": True}),
            "node3.rail0 has its carrier back (held back: it flaps, by the rule azure)",
        ),
        (
            event("flap", "up", evidence={"penalty": 2100.0, "suppressed": True}),
            "node3.rail0 has its carrier back (penalty 2100, damped)",
        ),
        (
            event("path", "lossy", who="a>b#0", evidence={"full_size_lost": True, "bytes": 1_450}),
            "a>b#0 loses packets (none as large as 1,450 bytes arrives, others do)",
        ),
        (event("process", "dead", who="node1/probe"), "node1/probe is dead or stalled; its paths are not blamed"),
        (
            event("refusal", "refused", policy="budget", evidence={"reason": "8 in a minute"}),
            "nothing is moved for node3.rail0: budget (8 in a minute)",
        ),
        (event("path", "{odd}", who="a{b}"), "path {odd}: a{b}"),
        (event("quake", "shaking", evidence={"reason": "x"}), "quake shaking: node3.rail0"),
    ],
)
def test_an_event_is_a_sentence(told, words):
    """With the few numbers that a person wants; a state or kind of a later version is told as it is."""
    assert sentence(told) == words


def test_several_told_together_are_named_together():
    """The sentence of the first, about all of them."""
    assert sentence(event("path", "silent"), "x and 3 more") == "nothing arrives any more on x and 3 more"


@pytest.mark.parametrize(
    ("kind", "state", "bad"), [("nic", "lossy", True), ("nic", "sound", False), ("quake", "up", True)]
)
def test_the_end_of_a_trouble_is_not_bad(kind, state, bad):
    """It is shown in another colour than what it ends; of a kind that is not known, nothing is known to be an end."""
    assert is_bad(event(kind, state)) is bad
