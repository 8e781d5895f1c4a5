"""Which job a flow belongs to, and which registrations hold."""

from __future__ import annotations

import pytest

from foliot.jobs import Jobs, jobs_of
from foliot_schemas import Job, WireError, decode, encode

S = 1_000_000_000


def job(name="a", nodes=(0, 1), *, rail="rail0", since_ns=1, priority=0):
    """A job on some nodes."""
    return Job(name=name, nics=tuple(f"node{node}.{rail}" for node in nodes), priority=priority, since_ns=since_ns)


def flow(source, destination, rail="rail0"):
    """The name of a flow."""
    return f"node{source}.{rail}>node{destination}.{rail}"


@pytest.fixture
def jobs():
    """Two registered jobs."""
    jobs = Jobs()
    assert jobs.take(job("a", (0, 1)), S) == ""
    assert jobs.take(job("b", (2, 3)), S) == ""
    return jobs


def test_a_flow_within_a_registered_job_is_the_jobs(jobs):
    """Both ends are its NICs; a flow between two jobs is neither's."""
    found = jobs_of([flow(0, 1), flow(3, 2), flow(0, 2), flow(0, 1, "rail1")], jobs)
    assert found == {flow(0, 1): "a", flow(3, 2): "b", flow(0, 2): "found:node0", flow(0, 1, "rail1"): "found:node0"}


def test_other_flows_are_grouped_by_who_talks_to_whom():
    """In whatever order they come, and on whatever rails, a group is named after the first of its nodes."""
    ring = [flow(5, 6), flow(7, 8, "rail1"), flow(6, 7), flow(8, 5)]
    apart = [flow(9, 4)]
    for order in (ring + apart, apart + ring[::-1], ring[2:] + apart + ring[:2]):
        assert jobs_of(order, Jobs()) == dict.fromkeys(ring, "found:node5") | dict.fromkeys(apart, "found:node4")


def test_a_registered_job_joins_no_groups(jobs):
    """What its nodes exchange as the job does not tie others' flows together."""
    found = jobs_of([flow(0, 1), flow(0, 4, "rail1"), flow(1, 5, "rail1")], jobs)
    assert found == {flow(0, 1): "a", flow(0, 4, "rail1"): "found:node0", flow(1, 5, "rail1"): "found:node1"}


def test_a_job_that_is_not_told_again_is_over(jobs):
    """Its flows are a found job's from then on, and its NICs are free."""
    jobs.take(job("b", (2, 3)), 50 * S)
    before = jobs.turns
    jobs.expire(61 * S)
    assert [each.name for each in jobs.all()] == ["a", "b"]
    jobs.expire(62 * S)
    assert [each.name for each in jobs.all()] == ["b"]
    assert jobs.turns == before + 1
    assert jobs_of([flow(0, 1), flow(2, 3)], jobs) == {flow(0, 1): "found:node0", flow(2, 3): "b"}
    assert jobs.take(job("c", (1, 4), since_ns=9), 62 * S) == ""


def test_what_is_over_keeps_no_nic_from_the_next_job(jobs):
    """Also where nobody has asked since."""
    assert jobs.take(job("c", (1, 4), since_ns=9), 61 * S) == "node1.rail0 is of the job a"
    assert jobs.take(job("c", (1, 4), since_ns=9), 62 * S) == ""


def test_what_was_told_before_the_time_began_holds_from_then_on():
    """A reader knows of jobs before it hears of any time."""
    jobs = Jobs()
    jobs.take(job("a", (0, 1)), 0)
    for now_ns, there in ((1_000 * S, ["a"]), (1_060 * S, ["a"]), (1_061 * S, [])):
        jobs.expire(now_ns)
        assert [each.name for each in jobs.all()] == there


def test_a_clock_that_is_set_back_keeps_no_job_for_longer():
    """A minute by the clock as it is then."""
    jobs = Jobs()
    jobs.take(job("a", (0, 1)), 5_000 * S)
    for now_ns, there in ((1_000 * S, ["a"]), (1_060 * S, ["a"]), (1_061 * S, [])):
        jobs.expire(now_ns)
        assert [each.name for each in jobs.all()] == there


def test_a_flow_has_the_priority_of_the_job_of_both_its_ends():
    """Others, and those of groups that are found, have that of nobody's."""
    jobs = Jobs()
    jobs.take(job("a", (0, 1), priority=5), S)
    jobs.take(job("b", (2, 3), priority=-5), S)
    told = {flow(0, 1): 5, flow(1, 0): 5, flow(2, 3): -5, flow(0, 2): 0, flow(0, 9): 0, flow(8, 9): 0}
    assert {each: jobs.priority_of(each) for each in told} == told
    assert (jobs.of_flow(flow(0, 1)).name, jobs.of_flow(flow(0, 2))) == ("a", None)
    with pytest.raises(ValueError, match="nonsense"):
        jobs.priority_of("nonsense")


def test_a_job_may_change_and_end(jobs):
    """A renewal may name other NICs; one without any ends it."""
    assert jobs.take(job("a", (1, 4), priority=3), S) == ""
    assert (jobs.of_nic("node0.rail0"), jobs.of_nic("node4.rail0"), jobs.get("a").priority) == ("", "a", 3)
    assert jobs.take(Job(name="a", nics=()), 2 * S) == ""
    assert (jobs.of_nic("node1.rail0"), jobs.get("a")) == ("", None)
    assert jobs.take(Job(name="nobody", nics=()), 2 * S) == ""


def test_of_two_jobs_that_name_a_nic_the_earlier_has_it(jobs):
    """Whichever is told first; the other is refused whole, and has what it had before."""
    assert jobs.take(job("c", (3, 4), since_ns=2), S) == "node3.rail0 is of the job b"
    assert jobs.of_nic("node4.rail0") == ""
    assert jobs.take(job("a", (1, 2), since_ns=2), S) == "node2.rail0 is of the job b"
    assert jobs.get("a") == job("a", (0, 1))
    assert jobs.take(job("c", (3, 4), since_ns=0), S) == ""
    assert (jobs.get("b"), jobs.of_nic("node2.rail0"), jobs.of_nic("node3.rail0")) == (None, "", "c")
    assert jobs.take(job("b", (2, 3)), 2 * S) == "node3.rail0 is of the job c"


def test_a_job_of_which_the_fleet_has_no_nic_is_refused():
    """Where the fleet's NICs are known; its names may be made up."""
    jobs, known = Jobs(), {"node0.rail0", "node1.rail0"}
    assert jobs.take(job("a", (8, 9)), 0, known) == "the fleet has no node8.rail0"
    assert jobs.take(job("a", (0, 1)), 0, known) == ""
    assert jobs.take(Job(name="a", nics=()), 0, known) == ""
    assert jobs.all() == []


def test_a_job_goes_on_when_a_node_of_it_leaves():
    """It keeps its priority for as long as it is told; also with who starts after that. Its node may come back."""
    whole = job("a", (0, 1, 2), priority=5)
    nics = {*whole.nics}
    jobs, late = Jobs(), Jobs()
    assert jobs.take(whole, S, nics) == ""
    for reader, now_s in ((jobs, 46), (jobs, 91), (late, 91)):
        assert reader.take(whole, now_s * S, nics - {"node2.rail0"}) == ""
        reader.expire((now_s + 60) * S)
        assert reader.priority_of(flow(0, 1)) == 5
        assert (reader.of_nic("node2.rail0"), reader.get("a").nics) == ("", ("node0.rail0", "node1.rail0"))
    turns = jobs.turns
    assert jobs.take(whole, 120 * S, nics - {"node2.rail0"}) == ""
    assert jobs.turns == turns
    assert jobs.take(whole, 121 * S, nics) == ""
    assert (jobs.turns, jobs.get("a")) == (turns + 1, whole)


def test_made_up_jobs_are_limited(monkeypatch):
    """A flood of names takes no more memory than a large fleet; jobs that are there go on."""
    monkeypatch.setattr("foliot.jobs._MOST_JOBS", 2)
    jobs = Jobs()
    assert [jobs.take(job(f"j{number}", (number,)), 0) for number in range(3)] == ["", "", "there are 2 jobs already"]
    assert jobs.take(job("j0", (7,)), 1) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"name": "found:node0"}, "nobody has registered"),
        ({"name": "a b"}, "cannot be a name"),
        ({"nics": ("node0",)}, "is no NIC"),
        ({"nics": ("node0.rail0>node1.rail0",)}, "cannot be a name"),
        ({"nics": ("node0.rail0", "node0.rail0")}, "twice"),
        ({"priority": 1_001}, "<= 1000"),
    ],
)
def test_a_job_that_contradicts_itself_is_no_message(changed, why):
    """Names that stand for something else, NICs that are none, and what is out of bounds."""
    sound = {"name": "a", "nics": ("node0.rail0",), "priority": 1}
    with pytest.raises(WireError, match=why):
        decode(encode(Job(**sound | changed)), Job)
