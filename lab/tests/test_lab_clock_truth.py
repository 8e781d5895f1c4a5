"""The truth about the clocks: lab time, true errors, bounds, and reference times as lab times."""

import time

import pytest

from foliot_lab.measure.clock_truth import LabTime, Truth
from foliot_schemas import ClockState

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND


class Skew:
    """A clock that is off by a constant, a drift and a step that a test may set."""

    def __init__(self, offset_ns=0, drift_ppb=0.0):
        self.offset = offset_ns
        self.drift_ppb = drift_ppb
        self.step_ns = 0

    def offset_ns(self, raw_ns):
        """By the constant, the drift since raw time 0 and the step."""
        return self.offset + round(self.drift_ppb * raw_ns * 1e-9) + self.step_ns


def state(clock, offset_ns, **fields):
    """A state from sync of a clock against node0."""
    values = {
        "reference": "node0", "drift_ppb": 0.0, "hard_bound_ns": 5000, "bound_ns": 100, "growth_ppb": 0.0,
        "as_of_ns": 0, "void_after_ns": 1 << 62, "status": "synchronised",
    }  # fmt: skip
    return ClockState(clock=clock, offset_ns=offset_ns, **(values | fields))


def known(**fields):
    """Two clocks, the second 3 ms ahead of the first; sync is wrong about it by 70 ns."""
    truth = Truth({"node0": Skew(1_000_000), "node1": Skew(4_000_000)})
    truth.learn(state("node0", EPOCH))
    truth.learn(state("node1", EPOCH - 3_000_000 + 70, **fields))
    return truth


def test_lab_time_is_raw_time_plus_a_constant():
    """It reads like wall-clock time."""
    assert LabTime(base_ns=EPOCH).of_raw(12_345) == EPOCH + 12_345
    starting = LabTime.starting_now()
    assert abs(starting.now_ns() - time.time_ns()) < 60 * SECOND
    assert starting.now_ns() <= starting.now_ns()


def test_the_true_error_is_what_sync_got_wrong():
    """A clock's error is its reference time minus the reference clock's, skews known exactly."""
    assert known().error_ns("node1", 10 * SECOND) == 70


def test_drift_is_part_of_the_truth():
    """A drift that sync does not know grows into an error with age; one that it knows does not."""
    truth = Truth({"node0": Skew(), "node1": Skew(0, drift_ppb=1000)})
    truth.learn(state("node0", EPOCH))
    truth.learn(state("node1", EPOCH))
    assert truth.error_ns("node1", 2 * SECOND) == 2000
    truth.learn(state("node1", EPOCH, drift_ppb=-1000.0))
    assert abs(truth.error_ns("node1", 2 * SECOND)) <= 1


def test_samples_are_judged_by_both_bounds():
    """Shares count the claims within each bound, with the bounds grown to the moment of the sample."""
    truth = known(bound_ns=60, hard_bound_ns=69, growth_ppb=1.0)
    for second in (0, 20):
        truth.sample(second * SECOND)
    summary = truth.summary()
    assert summary.true_error_ns.max == 70
    assert (summary.within_bound, summary.within_hard_bound) == (0.5, 0.5)


def test_the_reference_does_not_flatter():
    """The reference clock's own nothing of an error is not counted."""
    truth = known()
    truth.sample(SECOND)
    assert [claim.error_ns for claim in truth.claims] == [70]


@pytest.mark.parametrize(
    "fields",
    [{"status": "disrupted"}, {"status": "unsynchronised"}, {"void_after_ns": SECOND}, {"reference": "node9"}],
)
def test_what_promises_nothing_is_no_claim(fields):
    """A clock that does not promise a time, or no longer, makes no claim."""
    truth = known(**fields)
    truth.sample(10 * SECOND)
    assert truth.claims == []


def test_holdover_is_a_claim():
    """A clock in holdover still promises its bound."""
    truth = known(status="holdover")
    truth.sample(SECOND)
    assert len(truth.claims) == 1


def test_a_step_makes_an_old_claim_wrong():
    """After a step of the clock the value used is wrong by the step until sync says otherwise."""
    truth = known()
    truth._skews["node1"].step_ns = 1_000_000
    truth.sample(SECOND)
    assert truth.claims[0].error_ns == 1_000_070
    assert not truth.claims[0].within_hard_bound


def test_before_the_first_word_nothing_is_known():
    """Without a state there is no claim, no truth of a reference time, and a summary without numbers."""
    truth = Truth({"node0": Skew(), "node1": Skew()})
    truth.sample(SECOND)
    summary = truth.summary()
    assert truth.claims == []
    assert truth.raw_ns(EPOCH) is None
    assert (summary.windows, summary.true_error_ns.p50, summary.within_bound) == (0, None, None)


def test_windows_are_counted_once():
    """Each sync window counts once, however many clocks it is about; a stranger's clock does not."""
    truth = known(window=3)
    truth.learn(state("node0", EPOCH, window=4))
    truth.learn(state("elsewhere", EPOCH, window=9))
    assert truth.summary().windows == 3


def test_steering_of_all_clocks_alike_is_no_error():
    """When the common time is made to run faster than the reference, a clock is judged by what both say."""
    truth = Truth({"node0": Skew(), "node1": Skew(0, drift_ppb=1000)})
    truth.learn(state("node0", EPOCH, drift_ppb=20_000.0))
    truth.learn(state("node1", EPOCH, drift_ppb=19_000.0))
    assert abs(truth.error_ns("node1", 10 * SECOND)) <= 1
    truth.learn(state("node1", EPOCH, drift_ppb=18_000.0))
    assert truth.error_ns("node1", 10 * SECOND) == pytest.approx(-10_000, abs=2)


def test_reference_times_become_lab_times():
    """A reference time is found on the raw clock again, through the reference's offset, skew and drift."""
    truth = Truth({"node0": Skew(1_000_000, drift_ppb=30_000)})
    truth.learn(state("node0", EPOCH, drift_ppb=-12_000.0, as_of_ns=4_000 * SECOND))
    raw_ns = 5_000 * SECOND
    assert abs(truth.raw_ns(truth.reference_ns("node0", raw_ns)) - raw_ns) <= 1
