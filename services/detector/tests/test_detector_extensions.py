"""A detector of an extension that fails: Foliot's own and other extensions' go on, and it is tried again."""

from __future__ import annotations

import msgspec
import pytest

from foliot_detector.core import registry
from foliot_detector.core.pipeline import Pipeline
from foliot_detector.settings import DetectorSettings
from foliot_schemas import Event, PortState

SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND
NIC = "node0.rail0"


class Extension:
    """Says that a port was seen, unless it fails; see `Detector`."""

    def __init__(self):
        self.seen = 0
        self.fails = False

    def resume(self, _event):
        """Fails, or does nothing."""
        if self.fails:
            raise LookupError

    def observe(self, seen, now_ns):
        """Fails, or says it of a port."""
        if not isinstance(seen, PortState):
            return []
        self.seen += 1
        if self.fails:
            raise KeyError(seen.nic)
        return [Event(id=f"seen/{now_ns}", kind="flap", who=seen.nic, state="up", at_ns=now_ns, since_ns=now_ns)]

    def tick(self, _now_ns):
        """Fails, or does nothing."""
        if self.fails:
            raise ZeroDivisionError
        return []


@pytest.fixture
def extensions(monkeypatch):
    """Two of them."""
    made = {"first": Extension(), "second": Extension()}
    makers = {name: lambda _inventory, name=name: made[name] for name in made}
    monkeypatch.setattr(registry, "_OF_EXTENSIONS", makers)
    return made


@pytest.fixture
def pipeline(extensions, make_node):
    """A detector that knows one node."""
    pipeline = Pipeline(DetectorSettings())
    pipeline.observe(make_node("node0"))
    return pipeline


@pytest.fixture
def see(pipeline, make_port):
    """A port's report, so many seconds after the start: what events are about and say."""
    return lambda second, **port: [
        (event.id.partition("/")[0], event.state)
        for event in pipeline.observe(make_port(NIC, START_NS + round(second * SECOND), **port))
    ]


def test_one_that_raises_takes_nobodys_events_along(pipeline, extensions, see):
    """Of an observation, a tick and the start: what it failed of is counted, and said once."""
    assert see(0) == [("seen", "up"), ("seen", "up")]
    extensions["first"].fails = True
    down = Event(id="f", kind="flap", who=NIC, state="down", at_ns=1, since_ns=1, fault="f")
    pipeline.resume(down)
    assert pipeline.tick(10_000_000) == []
    assert see(1, downs=1, carrier=False) == [("boot1", "down"), ("seen", "up")]
    assert pipeline.counts["detectors_failed"] == 4
    (failure,) = pipeline.failures()
    assert (failure.part, failure.failures) == ("first", 4)
    assert pipeline.failures() == []


def test_one_that_goes_on_failing_is_left_out_for_longer_each_time(extensions, see):
    """And is tried again, each time."""
    extensions["first"].tick = lambda _now_ns: []
    extensions["first"].fails = True
    asked = []
    for tenth in range(200):
        before = extensions["first"].seen
        see(tenth / 10)
        if extensions["first"].seen > before:
            asked.append(tenth)
    assert asked == [0, 1, 2, 3, 13, 33, 73, 153]
    assert extensions["second"].seen == 200


def test_one_that_is_well_again_says_what_it_sees(extensions, see):
    """Nothing of what came meanwhile."""
    extensions["first"].fails = True
    for tenth in range(10):
        see(tenth / 10)
    extensions["first"].fails = False
    assert see(100) == [("seen", "up"), ("seen", "up")]


@pytest.mark.parametrize(
    "said",
    [
        7,
        ["no event"],
        [msgspec.structs.replace(Event(id="x", kind="flap", who=NIC, state="up", at_ns=1, since_ns=1), at_ns="soon")],
        [Event(id="x", kind="flap", who=NIC, state="up", at_ns=1, since_ns=1, evidence={"what": object()})],
    ],
    ids=["no list", "no event", "no time", "no evidence"],
)
def test_what_is_no_event_is_a_failure(pipeline, extensions, see, said):
    """It is found before anybody publishes it."""
    extensions["first"].observe = lambda *_: said
    assert see(0) == [("seen", "up")]
    assert pipeline.counts["detectors_failed"] == 1
