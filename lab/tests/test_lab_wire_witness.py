"""The witness: what pulses say, and pulses over real wires that are cut, moved and healed."""

import time

import msgspec
import numpy as np
import pytest

from foliot_lab.measure.clock_truth import LabTime
from foliot_lab.measure.outages import End, Pair, Pulses, judge, look
from foliot_lab.measure.wire_witness import Witness

MS = 1_000_000
BASE = 1_700_000_000_000_000_000
PERIOD = 5 * MS
FLIGHT = 50_000
DEVICES = ("fo0e0", "fo1e0", "fo0e1")
HERE, THERE = End("node0", "rail0"), End("node1", "rail0")
DEADLINE_S = 60.0


def pulses(*runs):
    """Pulses every 5 ms from BASE on, in runs of (how many, index of the device, or None where they were lost)."""
    devices = [device for count, device in runs for _ in range(count)]
    sent_ns = BASE + PERIOD * np.arange(len(devices), dtype=np.int64)
    came = np.array([device is not None for device in devices])
    return Pulses(
        sent_ns=sent_ns,
        arrived_ns=np.where(came, sent_ns + FLIGHT, 0),
        device=np.array([device or 0 for device in devices], dtype=np.int16),
        devices=DEVICES,
    )


def at(number):
    """When a pulse was sent."""
    return BASE + PERIOD * number


def test_a_cut_is_from_the_last_pulse_before_to_the_first_after():
    """A silence began when the last pulse that arrived was sent, and ends with the arrival of the first after it."""
    sight = look(pulses((10, 0), (4, None), (20, 1)), at(10) - MS)
    assert sight.began_ns == at(9)
    assert sight.flowed_ns == at(14) + FLIGHT
    assert (sight.changes, sight.returned_ns) == (1, None)


def test_pulses_that_waited_in_a_queue_belong_to_the_silence():
    """A pulse sent before the injection and lost in a queue began the silence; it is not what flowed again."""
    sight = look(pulses((8, 0), (6, None), (20, 1)), at(10) - MS)
    assert sight.began_ns == at(7)
    assert sight.flowed_ns == at(14) + FLIGHT


def test_a_pulse_that_slipped_through_is_not_the_return():
    """A pulse sent after the injection that still arrived does not count as moved if silence follows it."""
    sight = look(pulses((12, 0), (4, None), (20, 1)), at(10) - MS)
    assert sight.flowed_ns == at(16) + FLIGHT


def test_a_pulse_that_was_stranded_is_lost():
    """Pulses that a host kept until the wire was healed, long after others had arrived another way, were lost."""
    kept = pulses((10, 0), (4, 0), (60, 1), (10, 0))
    kept.arrived_ns[10:14] = at(74)
    sight = look(kept, at(10) - MS)
    assert (sight.began_ns, sight.flowed_ns) == (at(9), at(14) + FLIGHT)
    assert (sight.changes, sight.returned_ns) == (2, at(74) + FLIGHT)


def test_a_queue_may_deliver_out_of_turn():
    """A pulse that a full queue delivers a little after its successor has arrived."""
    queued = pulses((30, 0))
    queued.arrived_ns[10] = at(14)
    sight = look(queued, at(10) - MS)
    assert (sight.began_ns, sight.flowed_ns) == (None, at(14))


def test_no_interruption_flows_with_the_first_pulse_after_the_injection():
    """A pair that lost nothing flowed when the first pulse sent after the injection arrived."""
    sight = look(pulses((30, 0)), at(10) - MS)
    assert (sight.began_ns, sight.flowed_ns, sight.changes) == (None, at(10) + FLIGHT, 0)


def test_a_loss_long_after_the_injection_is_not_its_doing():
    """A pulse lost out of the injection's reach, as in a full queue, interrupts nothing."""
    sight = look(pulses((25, 0), (1, None), (20, 0)), at(10) - MS)
    assert sight.began_ns is None
    assert sight.flowed_ns == at(10) + FLIGHT


def test_a_witness_that_stood_still_around_the_injection_still_sees_the_silence():
    """Pulses sent again only out of the injection's reach, and lost, show a silence that may have begun within it."""
    stalled = pulses((11, 0), (200, None), (20, 1))
    stalled.sent_ns[11:] += 60 * MS
    stalled.arrived_ns[211:] += 60 * MS
    sight = look(stalled, at(10) - MS)
    assert (sight.began_ns, sight.flowed_ns) == (at(10), at(211) + 60 * MS + FLIGHT)


def test_silence_to_the_end_never_flowed_again():
    """A pair that stays silent has not moved."""
    sight = look(pulses((10, 0), (30, None)), at(10) - MS)
    assert (sight.flowed_ns, sight.returned_ns) == (None, None)


def test_return_is_the_first_pulse_that_stays():
    """Traffic is back with the first pulse on the way of before after the last one away; each change is counted."""
    sight = look(pulses((10, 0), (2, None), (10, 1), (5, 0), (5, 1), (10, 0)), at(10) - MS)
    assert sight.changes == 4
    assert sight.returned_ns == at(32) + FLIGHT


def test_back_on_the_rail_is_back_whatever_the_entropy():
    """Traffic that had left its rail is back once it is on it again, by whichever entropy."""
    sight = look(pulses((10, 0), (2, None), (10, 1), (10, 2)), at(10) - MS)
    assert sight.returned_ns == at(22) + FLIGHT
    assert sight.changes == 2


def test_a_pair_that_was_on_a_detour_is_back_on_its_own_rail():
    """Another fault had sent it away before; going on by that one's detour would be no return."""
    healed = pulses((10, 1), (5, 1), (10, 0))
    sight = look(healed, at(10) - MS, rail=DEVICES[0][2])
    assert (sight.changes, sight.returned_ns) == (1, at(15) + FLIGHT)
    assert look(pulses((10, 0), (5, 1), (10, 0), (5, 1)), at(10) - MS, rail=DEVICES[0][2]).returned_ns is None


def test_another_entropy_of_the_same_rail_is_a_way_of_its_own():
    """Traffic that stayed on its rail is back only on the very device of before."""
    away = look(pulses((10, 0), (2, None), (10, 2)), at(10) - MS)
    assert (away.changes, away.returned_ns) == (1, None)
    back = look(pulses((10, 0), (2, None), (10, 2), (10, 0)), at(10) - MS)
    assert (back.changes, back.returned_ns) == (2, at(22) + FLIGHT)


def test_what_comes_after_the_end_is_another_faults():
    """Pulses sent after the end of what is asked about say nothing."""
    sight = look(pulses((10, 0), (2, None), (10, 1), (10, 0)), at(10) - MS, until_ns=at(20))
    assert (sight.changes, sight.returned_ns) == (1, None)


@pytest.mark.parametrize(
    ("runs", "steered", "restored", "astray"),
    [
        ([(10, 0), (4, None), (10, 1), (10, 0), (10, 2)], 30, 24, False),  # it was back before
        ([(10, 0), (4, None), (10, 1), (10, 2)], 20, None, False),  # its former way was its no more
        ([(10, 0), (4, None), (10, 1), (10, 2)], None, None, True),
        ([(10, 0), (4, None), (10, 1), (10, 0), (10, 2)], None, None, True),
    ],
)
def test_what_was_moved_for_contention_need_not_be_on_its_former_way(runs, steered, restored, astray):
    """Nor do the moves for that count. The other pair came back."""
    one, other = Pair(HERE, THERE), Pair(THERE, HERE)
    both = {one: pulses(*runs), other: pulses((10, 0), (4, None), (9, 1), (21, 0))}
    ways = tuple(f"fo0e{entropy}" for entropy in range(3))
    seen = {pair: msgspec.structs.replace(each, devices=ways) for pair, each in both.items()}
    moved = {} if steered is None else {one: at(steered)}
    verdict = judge(seen, at(10) - MS, steered=moved)
    assert verdict.moved_ns == at(14) + FLIGHT
    assert verdict.astray == ((one,) if astray else ())
    expected = None if astray else at(23) if restored is None else at(24)
    assert verdict.restored_ns == (expected and expected + FLIGHT)


def test_what_was_moved_for_contention_had_come_back_to_its_own_rail():
    """It was on another fault's detour before. What is looked at is cut off at the move, and no more than that."""
    pair = Pair(HERE, THERE)
    verdict = judge({pair: pulses((10, 1), (5, 1), (10, 0), (5, 1))}, at(10) - MS, steered={pair: at(25)})
    assert (verdict.restored_ns, verdict.astray) == (at(15) + FLIGHT, ())


def test_moved_is_the_last_of_all_pairs():
    """A fault has moved when both directions flow: the later counts, for the move and for the return."""
    verdict = judge(
        {
            Pair(HERE, THERE): pulses((10, 0), (2, None), (18, 1), (10, 0)),
            Pair(THERE, HERE): pulses((10, 0), (5, None), (10, 1), (15, 0)),
        },
        at(10) - MS,
    )
    assert (verdict.interrupted, verdict.changed, verdict.moves) == (2, 2, 2)
    assert verdict.moved_ns == at(15) + FLIGHT
    assert verdict.restored_ns == at(30) + FLIGHT


def test_one_silent_direction_is_enough_not_to_have_moved():
    """As long as one direction of one pair is silent, nothing has moved, and nothing is restored while one is away."""
    verdict = judge(
        {Pair(HERE, THERE): pulses((10, 0), (2, None), (10, 1)), Pair(THERE, HERE): pulses((10, 0), (12, None))},
        at(10) - MS,
    )
    assert (verdict.moved_ns, verdict.restored_ns, verdict.interrupted) == (None, None, 2)
    assert verdict.astray == (Pair(HERE, THERE),)


def test_a_trouble_that_goes_away_is_no_move():
    """Pairs that flow again by the device of before have not been moved."""
    verdict = judge({Pair(HERE, THERE): pulses((10, 0), (4, None), (20, 0))}, at(10) - MS)
    assert (verdict.interrupted, verdict.moved_ns, verdict.moves) == (1, None, 0)


def test_a_pair_that_noticed_nothing_does_not_hold_up_the_others():
    """A pair neither interrupted nor moved counts for nothing, even if it has no pulse after the injection."""
    verdict = judge(
        {Pair(HERE, THERE): pulses((10, 0), (2, None), (10, 1)), Pair(THERE, HERE): pulses((9, 0))}, at(10) - MS
    )
    assert verdict.moved_ns == at(12) + FLIGHT


def wait_until(condition):
    """Waits for something that must come about."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.01)


def last_device(seen):
    """The device of the last pulse that arrived."""
    came = np.flatnonzero(seen.arrived_ns)
    return seen.devices[seen.device[came[-1]]] if len(came) else ""


@pytest.mark.net
def test_a_real_cut_is_seen_moved_and_restored(wires):
    """Over real wires the witness sees the cut, the move to the other device and the return, in this order."""
    lab = LabTime.starting_now()
    both = (Pair(HERE, THERE), Pair(THERE, HERE))
    with Witness(wires.ends, wires.namespaces, lab) as witness:
        watch = witness.arm(both)

        def flows_by(device):
            return lambda: all(last_device(seen) == device for seen in witness.look(watch).values())

        wait_until(flows_by("fo0e0"))
        injected_ns = lab.now_ns()
        wires.cut(0)
        cut_ns = lab.now_ns()
        wait_until(lambda: all((seen.sent_ns > cut_ns).sum() >= 5 for seen in witness.look(watch).values()))
        rerouted_ns = lab.now_ns()
        wires.take(1)
        wait_until(flows_by("fo1e0"))
        wires.heal(0)
        wires.take(0)
        wait_until(flows_by("fo0e0"))
        seen = witness.disarm(watch)
        ended_ns = lab.now_ns()
    # The cut is made by a process of its own, which a busy machine may start late.
    verdict = judge(seen, injected_ns, reach_ns=cut_ns - injected_ns + 1000 * MS)
    assert (verdict.interrupted, verdict.changed, verdict.moves) == (2, 2, 2)
    assert rerouted_ns < verdict.moved_ns < verdict.restored_ns < ended_ns


@pytest.mark.net
def test_undisturbed_wires_show_no_interruption(wires):
    """Without a fault every pulse arrives, soon after it was sent and by the device that the route names."""
    lab = LabTime.starting_now()
    pair = Pair(HERE, THERE)
    with Witness(wires.ends, wires.namespaces, lab, rate_hz=500) as witness:
        watch = witness.arm([pair])
        # What was sent last may be on its way yet.
        wait_until(lambda: (witness.look(watch)[pair].arrived_ns[:50] > 0).sum() == 50)
        seen = witness.disarm(watch)[pair]
    first = seen.until(int(seen.sent_ns[49]) + 1)
    assert (first.arrived_ns > first.sent_ns).all()
    assert {first.devices[device] for device in first.device} == {"fo0e0"}
    verdict = judge({pair: first}, int(first.sent_ns[10]))
    assert (verdict.interrupted, verdict.moved_ns, verdict.moves) == (0, None, 0)


@pytest.mark.net
def test_an_unwatched_end_is_refused(wires):
    """A pair with an end that has no socket is refused by name."""
    with (
        Witness(wires.ends, wires.namespaces, LabTime.starting_now()) as witness,
        pytest.raises(KeyError, match="node7 has no watched service address on rail0"),
    ):
        witness.arm([Pair(HERE, End("node7", "rail0"))])
