"""The story of a run: lines in the order of what they tell of, in proper words."""

from __future__ import annotations

import asyncio
import io

import pytest
from made_runs import FAULT, REFERENCE, NoSkew

from foliot_lab.measure.clock_truth import LabTime, Truth
from foliot_lab.report.narration import Narrator
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from foliot_schemas import ClockState, Command, Event, Outcome

MS = 1_000_000


class StillTime(LabTime, frozen=True):
    """Lab time that stands still at a raw time of 0, however long a test takes.

    Lines are held by the event loop's timers alone.
    """

    def now_ns(self):
        """Always the same."""
        return self.of_raw(0)


class Story:
    """A narrator whose second 0 is now, and what it wrote."""

    def __init__(self):
        time = StillTime(LabTime.starting_now().base_ns)
        truth = Truth({"node0": NoSkew()})
        truth.learn(
            ClockState(
                clock="node0", reference="node0", offset_ns=REFERENCE, drift_ppb=0.0, hard_bound_ns=0, bound_ns=0,
                growth_ppb=0.0, as_of_ns=0, void_after_ns=1 << 62, status="synchronised",
            )
        )  # fmt: skip
        self.out = io.StringIO()
        self.narrator = Narrator(time, truth, self.out)
        self.narrator.start(())
        self.zero_ns = time.now_ns()
        self.reference_ns = self.zero_ns - time.base_ns + REFERENCE
        """Reference time at second 0."""

    def words(self):
        """The lines without their times."""
        return [line[13:].split(None, 1)[1] for line in self.out.getvalue().splitlines()]

    def hear(self):
        """A fault as the lab learns of it: the witness looks seldom, and commands and outcomes are told together."""
        at_ns = self.reference_ns
        self.narrator.say("cut", at_ns=self.zero_ns)
        self.narrator.hear(
            Event(id="e", kind="flap", who="n.r", state="down", at_ns=at_ns + 2 * MS, since_ns=at_ns, fault=FAULT)
        )
        self.narrator.hear(
            Outcome(
                id="o", command="c", verb="reroute", node="n", status="done", fault=FAULT, started_ns=at_ns + 20 * MS
            )
        )
        self.narrator.hear(
            Command(
                id="c", verb="reroute", node="n", cause="e", issued_ns=at_ns + 10 * MS, deadline_ns=0, lease_revision=1
            )
        )
        self.narrator.say("flows", at_ns=self.zero_ns + 15 * MS)


STORY = ["cut", "n.r lost its carrier", "reroute: n is told", "flows", "reroute: 1 done"]


async def test_lines_come_in_the_order_of_their_times(until):
    """Whatever was known first; and all come by themselves."""
    story = Story()
    story.hear()
    assert story.words() == []

    await until(lambda: len(story.words()) == len(STORY))
    assert story.words() == STORY


async def test_what_is_held_at_the_end_is_written():
    """At once and in order, and nothing of it again."""
    story = Story()
    story.hear()
    story.narrator.finish()

    assert story.words() == STORY
    await asyncio.sleep(1.5)  # longer than anything is held
    assert story.words() == STORY


async def test_what_is_known_very_late_or_lies_ahead_is_told_all_the_same(until):
    """A clock that is wrong keeps nothing back."""
    story = Story()
    story.narrator.say("late", at_ns=story.zero_ns - 5_000 * MS)
    story.narrator.say("ahead", at_ns=story.zero_ns + 3_600_000 * MS)

    await until(lambda: story.words()[:1] == ["late"])
    await until(lambda: story.words() == ["late", "ahead"])


DONE, UNASKED, ALREADY = ("done", False), ("done", True), ("already", True)


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ((UNASKED,), "reroute: 1 by itself\n"),
        ((UNASKED, UNASKED), "reroute: 2 by themselves\n"),
        ((UNASKED, DONE, DONE), "reroute: 2 done, 1 by itself\n"),
        ((ALREADY,), "reroute: 1 already\n"),
        ((UNASKED, UNASKED, ALREADY), "reroute: 2 by themselves, 1 already\n"),
        ((("refused", True),), "reroute: 1 refused; why not\n"),
    ],
)
async def test_nodes_that_act_unasked_are_counted_in_proper_words(actions, words, until):
    """The outcomes of one fault make one line, which counts a node's own act only if it moved something."""
    out = io.StringIO()
    narrator = Narrator(LabTime.starting_now(), Truth({}), out)
    for number, (status, armed) in enumerate(actions):
        node = f"node{number}"
        narrator.hear(
            Outcome(
                id=node, command="c", verb="reroute", node=node, status=status, armed=armed, fault="f",
                reason="why not" if status == "refused" else "",
            )
        )  # fmt: skip

    await until(out.getvalue)
    assert out.getvalue().endswith(words)


async def test_what_is_said_of_many_paths_is_one_line_and_an_unknown_kind_is_told_as_it_is(until):
    """Each by the service that says it: refusals are the remediator's."""
    story = Story()
    for kind, who, state in [
        ("path", "a.r>b.r#0", "silent"), ("path", "a.r>b.r#1", "silent"), ("refusal", "a.r", "refused"),
        ("quake", "a", "shaking"),
        ("quake", "b", "shaking"),
    ]:  # fmt: skip
        event = Event(id=f"{kind}/{who}", kind=kind, who=who, state=state, at_ns=story.reference_ns, since_ns=0)
        story.narrator.hear(event)
    await until(lambda: len(story.words()) == 4)

    told = {tuple(line[13:].split(None, 1)) for line in story.out.getvalue().splitlines()}
    assert told == {
        ("detector", "nothing arrives any more on a.r>b.r#0 and 1 more"),
        ("remediator", "nothing is moved for a.r: "),
        ("detector", "quake shaking: a"),
        ("detector", "quake shaking: b"),
    }


async def test_a_link_has_the_labs_name(until):
    """By the address of the port that it enters, which is its name on the bus."""
    out, links = io.StringIO(), plan(FabricSpec(hosts=4, rails=1, leaves=2, spines=2), 7)
    narrator = Narrator(LabTime.starting_now(), Truth({}), out, links.link_name)
    for who, state in (("10.110.0.1", "fabric-contention"), ("node3.rail0", "incast")):
        narrator.hear(Event(id=who, kind="contention", who=who, state=state, at_ns=0, since_ns=0))
    await until(lambda: out.getvalue().count("\n") == 2)
    assert "flows share the link rail0.leaf0-spine0 while others have room" in out.getvalue()
    assert "flows that arrive at node3.rail0 want more than it carries" in out.getvalue()
    assert links.link_name("node3.rail0/in") == links.link_name("node3.rail0/out") == "node3.rail0"


def test_times_are_those_of_the_scenario():
    """A line from before second 0 has a negative time."""
    time, out = LabTime.starting_now(), io.StringIO()
    narrator = Narrator(time, Truth({"node0": NoSkew()}), out)

    async def tell():
        narrator.start((), 30.0)
        narrator.say("before")
        narrator.finish()

    asyncio.run(tell())
    seconds, *_ = out.getvalue().split()
    assert -30.0 <= float(seconds) < -20.0
