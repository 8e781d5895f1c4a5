"""The built-in scenario, in all its sizes."""

import importlib.resources
from pathlib import Path

import pytest

from foliot_lab import launch
from foliot_lab.demo import SIZES, demo
from foliot_lab.measure.budget import CannotCarryError, Now
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.validation import problems_of


def test_with_eight_hosts_it_is_as_described():
    """Nothing is scaled."""
    text = importlib.resources.files("foliot_lab").joinpath("demo.toml").read_text()
    assert demo(8) == parse_scenario(text)


@pytest.mark.parametrize("hosts", SIZES)
def test_every_size_is_a_scenario_that_can_be_run(hosts):
    """Its faults are on hosts that it has, two at a time not on the same thing; all else is the same."""
    scenario = demo(hosts)
    assert scenario.fabric.hosts == hosts
    assert list(problems_of(scenario.faults, scenario.fabric)) == []
    assert [fault.kind for fault in scenario.faults] == [fault.kind for fault in demo().faults]
    assert [fault.at_s for fault in scenario.faults] == [fault.at_s for fault in demo().faults]
    assert scenario.services == demo().services


def test_faults_fall_on_corresponding_hosts():
    """As far along among fewer hosts, on the same rail."""
    assert [fault.where for fault in demo(4).faults] == ["node1.rail0", "node2.rail1", "node0.rail0"]
    assert [fault.where for fault in demo(2).faults] == ["node0.rail0", "node1.rail1", "node0.rail0"]


def _chosen(monkeypatch, hosts=None, run=False, force=False, **machine):
    """The processors that the command uses on such a machine."""
    sound = {"idle_cpu": 1.0, "stolen_cpu": 0.0, "fixed_work_s": 0.213, "processors": 2}
    for name in ("look", "glance"):
        monkeypatch.setattr(Now, name, lambda speed: Now(**(sound | machine), speed=speed))
    wish = launch.Wish(
        folder=Path(), report=None, port=0, speed=1.0, stay=False, is_demo=not run,
        forced=force if run else hosts is not None,
    )  # fmt: skip
    sizes = SIZES if hosts is None else (hosts,)
    scenario, _ = launch._chosen([demo(size) for size in sizes], wish)
    return scenario.fabric.hosts


def test_the_demo_says_how_large_a_fabric_it_takes_and_why(monkeypatch, capsys):
    """With what each size would leave."""
    assert _chosen(monkeypatch, idle_cpu=0.75) == 4
    assert capsys.readouterr().out == (
        "the machine is 75% idle; with 8 hosts 24%, 4 hosts 48%, 2 hosts 59% of what it may use would be left:"
        " it takes 4, the most that leave 40%, or else the fewest (--hosts overrules)\n"
    )


def test_the_smallest_is_taken_as_long_as_it_is_carried_at_all(monkeypatch):
    """Less than is asked for is better than nothing; nothing is told in words."""
    assert _chosen(monkeypatch, idle_cpu=0.4) == 2
    with pytest.raises(CannotCarryError, match="2 hosts on 2 rails would keep"):
        _chosen(monkeypatch, fixed_work_s=3.0)


def test_the_person_overrules_the_machine(monkeypatch, capsys):
    """It says what is lacking, and goes on; where nothing is lacking it says nothing."""
    assert _chosen(monkeypatch, hosts=8, idle_cpu=0.5) == 8
    assert capsys.readouterr().out.endswith("or let less else run. It goes on all the same.\n")
    assert _chosen(monkeypatch, hosts=8) == 8
    assert capsys.readouterr().out == ""


def test_a_scenario_of_ones_own_is_run_or_refused(monkeypatch):
    """Nothing smaller stands in for it."""
    assert _chosen(monkeypatch, hosts=8, run=True, idle_cpu=0.6) == 8
    assert _chosen(monkeypatch, hosts=8, run=True, force=True, fixed_work_s=3.0) == 8
    with pytest.raises(CannotCarryError, match="8 hosts on 2 rails would keep"):
        _chosen(monkeypatch, hosts=8, run=True, fixed_work_s=0.5)
