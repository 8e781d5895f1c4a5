"""A process that is said to be dead needs no fault where the lab saw that it stood still."""

import msgspec
import pytest
from made_runs import REFERENCE, SECOND, event, evidence, lab_ns, scenario

from foliot_lab.measure.host_latency import Second, Steps
from foliot_lab.report.report import build

DEAD_S, ALIVE_S = 24.0, 24.5
LAST_WORD_NS = REFERENCE + 22 * SECOND


def steps(longest_ms):
    """Of a loop."""
    return Steps(
        p50_ms=0.1, p99_ms=1.0, max_ms=longest_ms, steps_over_10ms=1, own_p99_ms=1.0, own_max_ms=1.0, own_over_10ms=0
    )


@pytest.mark.parametrize(
    ("waited", "longest", "strays"),
    [
        ({25: {"node1/probe": 1.6}}, {}, 0),  # counted when it is over
        ({24: {"node1/probe": 0.8}, 25: {"node1/probe": 0.8}}, {}, 0),
        ({}, {"node1/probe": 1_900.0}, 0),
        ({24: {"node1/probe": 0.5}}, {"node1/probe": 400.0}, 2),
        ({21: {"node1/probe": 1.6}, 27: {"node1/probe": 1.6}}, {}, 2),  # at other times
        ({25: {"node2/probe": 1.6}}, {"node2/probe": 1_900.0, "node1/agent": 1_900.0}, 2),  # another's
    ],
)
def test_it_stood_still_for_most_of_its_silence(waited, longest, strays):
    """It had no processor, or was in one step; its return needs no more."""
    fields = {"kind": "process", "who": "node1/probe", "fault": "dead", "since_ns": LAST_WORD_NS}
    dead = event(DEAD_S, state="dead", **fields)
    back = event(ALIVE_S, state="alive", cause=dead.message.id, **fields)
    seconds = [Second(lab_ns(at_s), 0.0, 1.0, waited.get(at_s, {})) for at_s in range(60)]
    made = evidence(scenario(), [], {}, [dead, back])
    machine = msgspec.structs.replace(made.machine, loops={name: steps(ms) for name, ms in longest.items()})
    assert build(msgspec.structs.replace(made, seconds=seconds, machine=machine)).unexplained.events == strays
