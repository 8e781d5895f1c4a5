"""What a scenario costs, what a machine has, and what is said where that is not enough."""

import msgspec
import pytest

from foliot_lab.demo import SIZES, demo
from foliot_lab.measure import budget
from foliot_lab.measure.budget import CARRIED, COMFORTABLE, CannotCarryError, Now, affordable, cost
from foliot_lab.scenario.spec import FabricSpec, Scenario, WorkloadSpec

QUICK = Now(idle_cpu=0.98, stolen_cpu=0.0, fixed_work_s=0.213, processors=2)
"""The machine that the costs were measured on, with nothing to do."""


def like(**changes):
    """The quick machine, but for these."""
    return msgspec.structs.replace(QUICK, **changes)


@pytest.mark.parametrize(("hosts", "busy"), [(2, 0.27), (4, 0.49), (8, 0.87)])
def test_the_costs_are_those_that_were_measured(hosts, busy):
    """The processors that all processes of the demo's fabric together kept busy, to a thirtieth of one."""
    assert cost(demo(hosts)).processes == pytest.approx(busy, abs=0.033)


@pytest.mark.parametrize(
    ("changes", "hosts"),
    [
        ({}, 8),
        ({"fixed_work_s": 0.213 * 1.3}, 4),  # a third slower
        ({"fixed_work_s": 0.213 * 2}, 4),
        ({"fixed_work_s": 0.213 * 3}, 2),
        ({"idle_cpu": 0.7}, 4),  # others use six tenths of a processor
        ({"idle_cpu": 0.6}, 2),
        ({"idle_cpu": 0.8, "stolen_cpu": 0.2}, 4),
        ({"speed": 0.5}, 4),
        ({"speed": 0.35}, 2),
        ({"processors": 8, "fixed_work_s": 0.213 * 2}, 8),
    ],
)
def test_the_demo_takes_the_largest_fabric_that_leaves_two_fifths(changes, hosts):
    """By how quick the machine is, what else runs, what is stolen, and what a quota allows."""
    machine = like(**changes)
    assert next(size for size in SIZES if not machine.lacks(demo(size), COMFORTABLE)) == hosts
    assert machine.left_by(demo(hosts)) >= COMFORTABLE.left


def test_a_machine_that_the_demo_is_too_much_for_is_told_what_it_lacks():
    """With what the fabric needs, what there is, and what would help."""
    said = like(fixed_work_s=0.95, idle_cpu=0.7, stolen_cpu=0.2).lacks(demo(2), COMFORTABLE)
    assert said.startswith("A fabric of 2 hosts on 2 rails would keep 1.4 of this machine's 2 processors busy, and 40%")
    assert "70% are idle now, 20% of busy time is stolen" in said
    assert "takes 0.21 s on a quick machine takes 0.95 s here" in said


def test_a_quota_is_told_too():
    """As a share of the processors."""
    assert "processors busy, of which it may use 20%, and" in like(speed=0.2).lacks(demo(8))


def test_a_scenario_is_carried_by_a_machine_that_a_few_others_use():
    """They make room, as the scheduler has them do; but not where it would not fit beside them even so."""
    busy = like(idle_cpu=0.25)
    assert busy.left_by(demo(4)) < 0
    assert busy.lacks(demo(4), CARRIED) == ""
    assert busy.lacks(demo(4), COMFORTABLE)
    assert like(idle_cpu=0.1).lacks(demo(8), CARRIED)
    assert like(idle_cpu=0.25, stolen_cpu=0.7).lacks(demo(4), CARRIED)


def test_more_of_anything_costs_more():
    """Hosts, rails, bus servers and traffic; a job moves what its links carry."""
    small = Scenario(fabric=FabricSpec(hosts=4), workload=WorkloadSpec(kind="none"))
    for more in ({"hosts": 8}, {"rails": 3}, {"bus_servers": 3}):
        changed = msgspec.structs.replace(small, fabric=msgspec.structs.replace(small.fabric, **more))
        assert cost(changed).processes > cost(small).processes
    for kind in ("ring", "train"):
        assert cost(msgspec.structs.replace(small, workload=WorkloadSpec(kind=kind))).interrupts > 0
    assert cost(small).interrupts == 0


@pytest.fixture
def seen(monkeypatch):
    """Machines seen one after the other, the last one from then on; every look takes 30 s of a simulated clock."""
    clock, machines = [0.0], [QUICK]

    def look(speed):
        clock[0] += 30.0
        return msgspec.structs.replace(machines.pop(0) if len(machines) > 1 else machines[0], speed=speed)

    monkeypatch.setattr(budget.Now, "look", look)
    monkeypatch.setattr(budget.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(budget.time, "sleep", lambda _: None)
    return machines


def test_the_first_that_fits_is_taken(seen):
    """Here at half speed, so that it is not the largest."""
    scenario, now = affordable([(demo(size), COMFORTABLE) for size in SIZES], 0.5)
    assert scenario == demo(4)
    assert now.speed == 0.5


def test_others_are_waited_for(seen):
    """The obstacle to all choices is told once, and may end."""
    seen[:] = [like(idle_cpu=0.1), like(idle_cpu=0.1), QUICK]
    said = []
    assert affordable([(demo(8), COMFORTABLE), (demo(2), COMFORTABLE)], say=said.append)[0] == demo(8)
    assert len(said) == 1
    assert said[0].startswith("waiting for up to 60 s for a better moment: A fabric of 2 hosts")


def test_others_are_not_waited_for_without_end(seen):
    """After a minute it is said what is lacking."""
    seen[:] = [like(idle_cpu=0.1)]
    with pytest.raises(CannotCarryError, match="10% are idle now"):
        affordable([(demo(8), COMFORTABLE)], say=lambda _: None)


def test_a_machine_that_is_too_slow_is_not_waited_for(seen):
    """It is no quicker in a minute."""
    seen[:] = [like(fixed_work_s=2.0)]
    said = []
    with pytest.raises(CannotCarryError, match=r"takes 2.00 s here"):
        affordable([(demo(8), CARRIED)], say=said.append)
    assert not said


@pytest.mark.parametrize("see", [Now.look, Now.glance])
def test_a_real_machine_can_be_seen(see):
    """The look is at this one, and what it says can be judged."""
    now = see(0.5)
    assert now.fixed_work_s > 0
    assert 0 <= now.idle_cpu <= 1
    assert 0 <= now.stolen_cpu <= 1
    assert now.processors >= 1
    assert now.speed == 0.5
    assert now.left_by(demo(2)) > now.left_by(demo(8))
