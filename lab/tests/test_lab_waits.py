"""The time of a scenario in which nothing is due is left out, and no other."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from foliot_lab.faults import injection
from foliot_lab.faults.actions import Action
from foliot_lab.faults.injection import ScenarioTime, run_timeline
from foliot_lab.faults.waits import Waits
from foliot_lab.scenario.reading import ScenarioError, parse_scenario
from foliot_schemas import Event
from virtual_loop import VirtualLoop

BEFORE_S = 2.0
CUT = '[[fault]]\nat_s = 10\nkind = "link-down"\nwhere = "node0.rail0"\n'
RANK = '[workload]\nkind = "train"\n[[fault]]\nat_s = 10\nkind = "hang"\nwhere = "node2/rank"\nfor_s = 40\n'
OUTLIVES = '[[job]]\nname = "train"\nkind = "train"\nuse = "foliot"\nspares = 1\n'
RUN = "[run]\nduration_s = 100\nskip_waits = true\n"


def hang(state):
    """An event about a rank: what it waits for, or that it goes on."""
    cause = "" if state == "absent" else "hang/absent"
    return Event(
        id=f"hang/{state}", kind="hang", who="train/rank2", state=state, at_ns=1, since_ns=1, fault="hang", cause=cause
    )


@pytest.fixture
def play(monkeypatch):
    """A function that plays a scenario in virtual time.

    Returns when each edge came and when the run ended, in s. Traffic moves one second after it was cut, and is back two
    seconds after the healing; None: it never is. A rank's hang is named so many seconds after it began, and
    over so many after the healing; None: it never is. A job is whole again so many seconds after each.
    """
    monkeypatch.setattr(injection, "prepare", lambda *_: Action(lambda: None, lambda: None))

    def played(text, *, moves_s=1.0, back_s=2.0, says=None, whole_s=None):
        scenario = parse_scenario(text)

        async def through():
            loop = asyncio.get_running_loop()
            seconds = ScenarioTime(0.0)
            waits = Waits(scenario, seconds, BEFORE_S)

            def injected(now):
                waits.injected(now)
                if now.healed_ns is not None and back_s is not None:
                    loop.call_later(back_s, waits.over, now.fault_id)
                elif now.healed_ns is None and moves_s is not None:
                    loop.call_later(moves_s, waits.moved, now.fault_id)
                if whole_s is not None:
                    loop.call_later(whole_s, waits.whole, now.fault_id)
                if says is not None:
                    state, after_s = ("absent", says[0]) if now.healed_ns is None else ("moving", says[1])
                    loop.call_later(after_s, waits.told, now.fault_id, hang(state))

            leaving_out = asyncio.create_task(waits.leave_out())
            done = await run_timeline(
                scenario, seconds, None, None, clock=lambda: round(loop.time() * 1e9), report=injected
            )
            await seconds.until(scenario.duration_s)
            leaving_out.cancel()
            return [edge.at_ns * 1e-9 for each in done for edge in each.edges], loop.time()

        with contextlib.closing(VirtualLoop()) as loop:
            return loop.run_until_complete(through())

    return played


def test_what_is_over_is_not_waited_for(play):
    """The lab gets ready, the cable is cut and traffic moves, it is plugged in and all is back, and the run ends."""
    edges_s, ended_s = play(CUT + "for_s = 40\n" + RUN)
    began_s = 3.0 + BEFORE_S
    assert edges_s == pytest.approx([began_s, began_s + 1 + 3], abs=0.5)
    assert ended_s == pytest.approx(edges_s[1] + 3, abs=0.5)


def test_what_is_not_over_is_waited_for(play):
    """Traffic that does not flow, to the healing; then traffic that is not back, to the end."""
    began_s = 3.0 + BEFORE_S
    edges_s, ended_s = play(CUT + "for_s = 40\n" + RUN, moves_s=None, back_s=None)
    assert edges_s == pytest.approx([began_s, began_s + 40], abs=0.5)
    assert ended_s == pytest.approx(began_s + 90, abs=0.5)


@pytest.mark.parametrize(
    ("kind", "lasts_s"),
    [('"partition"\nwhere = "node1|bus"\nfor_s = 30', 30),
     ('"flap"\nwhere = "node1.rail0"\ntimes = 2\ndown_s = 1\nup_s = 28', 30),
     ('"clock-step"\nwhere = "node1"\noffset_ns = 5', 0)],
)  # fmt: skip
def test_other_faults_have_their_time(play, kind, lasts_s):
    """Also a flap, of which each time is its own; a step is over as it is done."""
    edges_s, ended_s = play(f"[[fault]]\nat_s = 10\nkind = {kind}\n{RUN}", moves_s=None, back_s=0.0)
    assert edges_s[-1] - edges_s[0] == pytest.approx(lasts_s, abs=0.01)
    assert ended_s == pytest.approx(edges_s[-1] + 3, abs=0.5)


def test_a_fault_that_lasts_to_the_end_is_over_when_traffic_flows(play):
    """A second one comes meanwhile, in its time."""
    second = CUT.replace("node0", "node1").replace("10", "12")
    edges_s, ended_s = play(CUT + second + RUN)
    assert edges_s[1] - edges_s[0] == pytest.approx(2, abs=0.01)
    assert ended_s == pytest.approx(edges_s[1] + 1 + 3, abs=0.5)


@pytest.mark.parametrize("says", [(4.0, 0.5), (4.0, 7.0), None])
def test_a_rank_holds_up_its_job_until_it_is_named_and_then_until_it_goes_on(play, says):
    """Who is not named has the time of the fault."""
    began_s = 3.0 + BEFORE_S
    lasts_s, over_s = (40.0, 0.0) if says is None else (says[0] + 3, says[1])
    edges_s, ended_s = play(RANK + RUN, moves_s=None, back_s=None, says=says)
    assert edges_s == pytest.approx([began_s, began_s + lasts_s], abs=0.5)
    assert ended_s == pytest.approx(edges_s[1] + over_s + 3, abs=0.5)


@pytest.mark.parametrize(
    ("kind", "lasts_s"),
    [('"drain"\nwhere = "node1"\nfor_s = 40', 2 + 3), ('"reset"\nwhere = "node1/rank"', 0)],
)
def test_a_job_that_outlives_its_ranks_is_waited_for_until_it_is_whole(play, kind, lasts_s):
    """After the fault and, where that gives the job something back, after its end as well."""
    edges_s, ended_s = play(f"{OUTLIVES}[[fault]]\nat_s = 10\nkind = {kind}\n{RUN}", whole_s=2.0)
    assert edges_s[-1] - edges_s[0] == pytest.approx(lasts_s, abs=0.5)
    assert ended_s == pytest.approx(edges_s[-1] + 2 + 3, abs=0.5)


@pytest.mark.parametrize(
    "text",
    [
        '[[job]]\nname = "a"\nkind = "ring"\nstep_mb = 1\n',
        '[[job]]\nname = "a"\nkind = "train"\nfor_s = 9\n',
        '[[job]]\nname = "a"\nkind = "train"\n[[job]]\nname = "b"\nkind = "ring"\nstep_mb = 1\n',
        '[workload]\nkind = "train"\n[train]\ncheckpoint_steps = 20\n',
    ],
)
def test_it_is_refused_where_nobody_knows_what_is_due(text):
    """What jobs get is measured as long as the run lasts. When torchrun has made a job whole again, nobody says."""
    with pytest.raises(ScenarioError, match="skip_waits"):
        parse_scenario(text + RUN)
