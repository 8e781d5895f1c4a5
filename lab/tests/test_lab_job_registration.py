"""Which jobs of a scenario are registered on the lab's bus."""

from __future__ import annotations

from foliot.cli.job import Wish
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.workload.job_registration import wishes

FABRIC = "[fabric]\nhosts = 4\nrails = 2\n"


def wished(*tables):
    """What is registered of the jobs with these keys."""
    jobs = [f'[[job]]\nname = "job{number}"\nkind = "pairs"\nmbps = 5\n{keys}\n' for number, keys in enumerate(tables)]
    scenario = parse_scenario(FABRIC + "".join(jobs))
    return wishes(scenario.jobs, scenario.fabric)


def test_a_job_is_registered_with_its_hosts_rails_and_priority():
    """By default with all of them, and none."""
    keys = 'hosts = ["node0", "node2"]\nrails = ["rail1"]\npriority = 5'
    assert wished(keys) == {0: Wish("job0", ("node0", "node2"), ("rail1",), priority=5)}
    assert wished("") == {0: Wish("job0", ("node0", "node1", "node2", "node3"), ("rail0", "rail1"))}


def test_a_nic_belongs_to_one_job():
    """Those that share one are not registered; others are, on other rails or hosts."""
    first, second = 'hosts = ["node0", "node1"]', 'hosts = ["node1", "node2"]'
    assert wished(first, second) == {}
    assert [*wished(first + '\nrails = ["rail0"]', second + '\nrails = ["rail1"]')] == [0, 1]
    assert [*wished(first, second, 'hosts = ["node2", "node3"]', 'hosts = ["node3", "node1"]')] == []
    assert [*wished(first, 'hosts = ["node2", "node3"]')] == [0, 1]


def test_traffic_past_foliot_is_of_no_job():
    """It takes no NIC from another one."""
    keys = 'hosts = ["node0", "node1"]\n'
    assert [*wished(keys + 'over = "nic"', keys)] == [1]
