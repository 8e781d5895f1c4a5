"""The timeline: that each fault happens in its turn, and has its end."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from foliot_lab.faults import injection
from foliot_lab.faults.actions import Action
from foliot_lab.faults.injection import Edge, ScenarioTime, run_timeline
from foliot_lab.scenario.spec import FaultSpec, Scenario
from virtual_loop import VirtualLoop


class GoneBy:
    """A scenario's time of which every second has gone by."""

    async def until(self, at_s):
        """At once."""
        await asyncio.sleep(0)


@pytest.fixture
def play(monkeypatch):
    """Plays faults whose moments have all gone by, so that nothing waits; gives the injections and what was done."""

    async def play(*given: FaultSpec, broken: str = ""):
        done, clock = [], iter(range(1000))

        def pretend(fault, *_):
            def do(what):
                done.append((fault.id, what))
                if fault.id == broken and what == "inject":
                    raise OSError("refused")

            return Action(lambda: do("inject"), lambda: do("heal"))

        monkeypatch.setattr(injection, "prepare", pretend)
        reports = []
        scenario = Scenario(faults=given, duration_s=100.0)
        try:
            result = await run_timeline(
                scenario,
                GoneBy(),
                SimpleNamespace(),
                SimpleNamespace(),
                clock=lambda: next(clock),
                report=reports.append,
            )
        except ExceptionGroup as group:
            result = group
        return result, done, reports

    return play


async def test_a_flap_has_an_edge_for_every_change(play):
    """A link that flaps three times goes down and up three times, and has healed at the last."""
    [injected], done, reports = await play(
        FaultSpec(id="f1", at_s=1, kind="flap", where="node0.rail0", times=3, down_s=1.0, up_s=2.0)
    )
    assert done == [("f1", "inject"), ("f1", "heal")] * 3
    assert injected.edges == tuple(Edge(at_ns, down=at_ns % 2 == 0) for at_ns in range(6))
    assert (injected.injected_ns, injected.healed_ns) == (0, 5)
    assert [report.healed_ns for report in reports] == [None] * 5 + [5]


def test_a_flaps_moments_do_not_add_up_delays():
    """Every edge of a flap has its own moment, counted from the fault's start."""
    flap = FaultSpec(at_s=10, kind="flap", where="node0.rail0", times=3, down_s=0.5, up_s=1.5)
    assert injection.moments(flap) == [(10, 10.5), (12, 12.5), (14, 14.5)]
    assert injection.moments(FaultSpec(at_s=10, kind="drop", where="node0.rail0", for_s=3.0)) == [(10, 13)]


def test_a_lab_that_stands_still_does_the_rest_later():
    """By as much, so that what was due meanwhile comes in its turn; a little lateness does not add up."""
    late_s, moments_s = [3.0, 0.05, 0.05, 0.0], []

    class Halting(VirtualLoop):
        def jump(self, by_s):
            super().jump(by_s + late_s.pop(0))

    async def through():
        time = ScenarioTime(0.0)
        for at_s in (10, 11, 12, 12, 20):
            await time.until(at_s)
            moments_s.append(loop.time())

    with contextlib.closing(Halting()) as loop:
        loop.run_until_complete(through())
    assert moments_s == pytest.approx([13, 14.05, 15.05, 15.05, 23])


@pytest.mark.parametrize(("for_s", "steps"), [(2.0, ["inject", "before", "heal"]), (None, ["inject", "heal"])])
async def test_a_fault_that_ends_in_two_steps_has_both(monkeypatch, for_s, steps):
    """First what comes before its healing, then that; one that lasts to the end is healed in one."""
    done = []
    action = Action(*(lambda step=step: done.append(step) for step in ("inject", "heal", "before")))
    monkeypatch.setattr(injection, "prepare", lambda *_: action)
    scenario = Scenario(
        faults=(FaultSpec(id="f1", at_s=1, kind="reload", where="node0.rail0", for_s=for_s),), duration_s=100.0
    )
    await run_timeline(scenario, GoneBy(), SimpleNamespace(), SimpleNamespace(), clock=lambda: 0)
    assert done == steps
    assert injection.moments(scenario.faults[0]) == [(1, None if for_s is None else 4.0)]


async def test_a_fault_to_the_end_is_undone_but_never_healed(play):
    """A fault without for_s is cleaned up at the end of the run, and has no time of healing."""
    [injected], done, _ = await play(FaultSpec(id="f1", at_s=1, kind="drop", where="node0.rail0"))
    assert done == [("f1", "inject"), ("f1", "heal")]
    assert injected.healed_ns is None
    assert injected.edges == (Edge(0, down=True),)


async def test_a_fault_that_cannot_be_done_ends_the_timeline_and_all_is_healed(play):
    """When the kernel refuses a fault, the timeline ends with its words, and nothing stays injected."""
    group, done, _ = await play(
        FaultSpec(id="f1", at_s=1, kind="drop", where="node0.rail0"),
        FaultSpec(id="f2", at_s=1, kind="drop", where="node1.rail0"),
        broken="f2",
    )
    assert group.subgroup(OSError) is not None
    assert {fault for fault, what in done if what == "heal"} == {fault for fault, what in done if what == "inject"}
