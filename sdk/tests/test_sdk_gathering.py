"""Messages that wait for others."""

from __future__ import annotations

from foliot.bus.gathering import Gathering


def is_at_once(wait) -> bool:
    """Whether a wait ends without giving the loop a turn."""
    try:
        wait.send(None)
    except StopIteration:
        return True
    wait.close()
    return False


async def test_the_first_of_a_burst_waits_and_the_others_follow_at_once():
    """Two stand behind the first by the end of its wait; the one after them begins the next burst."""
    gathering = Gathering(0.01)
    await gathering.wait(lambda: 2)

    assert [is_at_once(gathering.wait(lambda: 0)) for _ in range(3)] == [True, True, False]


async def test_without_a_wait_each_is_taken_as_it_comes():
    """A service that acts gathers nothing."""
    gathering = Gathering(0.0)

    assert all(is_at_once(gathering.wait(lambda: 0)) for _ in range(3))
