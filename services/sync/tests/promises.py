"""What the tests of whole fleets ask of a run."""

from __future__ import annotations


def local(run, name, age_s=0.0):
    """What a clock shows so long after the latest states were published."""
    return run.fleet.local_at(run.fleet.names.index(name), run.now_s + age_s)


def promises_kept(run):
    """Checks that no clock that claims to be known is outside its bounds, until the next states come."""
    reference = run.states[run.sync.reference]
    for name, state in run.states.items():
        for age_s in (0.0, 1.0, 2.0):
            error = abs(run.fleet.error_ns(state, reference, run.now_s + age_s))
            assert error <= state.hard_bound_at_ns(local(run, name, age_s)), (name, state)
            if state.status in {"synchronised", "holdover"}:
                assert error <= state.bound_at_ns(local(run, name, age_s)), (name, state)


def statuses(run):
    """Status by clock."""
    return {name: state.status for name, state in run.states.items()}
