"""The bench of the agent's steps: what its acts come to."""

from bench.agent_cost import rows_of
from foliot.runtime.loop_steps import Steps


def _counted(*steps_ms):
    """Steps by how long they took, half of which they worked."""
    steps = Steps.kept()
    for took_ms in steps_ms:
        steps.add(took_ms * 1_000_000, took_ms * 500_000)
    return steps.counted()


def test_each_act_has_the_steps_of_all_repetitions():
    """Those that were long by the clock apart from those that the agent's own work made long."""
    nothing = _counted()
    first = {"start": _counted(1, 15), "nothing": nothing}
    second = {"start": _counted(1, 40), "nothing": nothing}
    start, idle = rows_of([first, second], 64)
    assert (start.act, start.peers, start.repetitions, start.steps) == ("start", 64, 2, 4)
    assert (start.steps_own_over_10ms, start.steps_over_10ms) == (1, 2)
    assert 0.5 <= start.step_own_p50_ms < 0.6
    assert 20 <= start.step_own_max_ms < 23
    assert (idle.act, idle.steps, idle.step_own_max_ms) == ("nothing", 0, 0)
