"""What ``foliot watch`` is asked for."""

from __future__ import annotations

import pytest

from foliot.cli.subject_patterns import PatternError, target


@pytest.mark.parametrize(
    ("pattern", "subject", "streams"),
    [
        ("event.>", "foliot.v1.event.>", ("EVENTS",)),
        ("event", "foliot.v1.event.>", ("EVENTS",)),
        ("foliot.v1.event.>", "foliot.v1.event.>", ("EVENTS",)),
        ("event.flap", "foliot.v1.event.flap.>", ("EVENTS",)),
        ("event.flap.*", "foliot.v1.event.flap.*", ("EVENTS",)),
        ("event.flap.node3_2erail0", "foliot.v1.event.flap.node3_2erail0", ("EVENTS",)),
        ("event.flap.node3.rail0", "foliot.v1.event.flap.node3_2erail0", ("EVENTS",)),
        ("event.path.a.r0>b.r0#2", "foliot.v1.event.path.a_2er0_3eb_2er0_232", ("EVENTS",)),
        ("command.*.node3", "foliot.v1.command.*.node3", ("COMMANDS",)),
        ("clock", "foliot.v1.clock.>", ()),
        ("clock.Node3", "foliot.v1.clock._4eode3", ()),
        ("observation.delay", "foliot.v1.observation.delay.>", ()),
        ("observation", "foliot.v1.observation.>", ()),
        ("observation.*.node3", "foliot.v1.observation.*.node3", ()),
        ("*.flap", "foliot.v1.*.flap.>", ("EVENTS", "COMMANDS", "OUTCOMES")),
        (">", "foliot.v1.>", ("EVENTS", "COMMANDS", "OUTCOMES")),
    ],
)
def test_a_pattern_becomes_a_subject(pattern, subject, streams):
    """The beginning stands for all below it, and the last name may be written plain."""
    found = target(pattern)

    assert (found.subject, found.streams, found.bucket) == (subject, streams, "")


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("inventory", "$KV.inventory.>"),
        ("inventory.>", "$KV.inventory.>"),
        ("paths.rack1.node3", "$KV.paths.rack1_2enode3"),
    ],
)
def test_a_bucket_is_asked_for_by_its_name(pattern, subject):
    """With a key, or all of it."""
    assert (target(pattern).subject, target(pattern).bucket) == (subject, pattern.partition(".")[0])


@pytest.mark.parametrize("pattern", ["", "evnt.>", "observation.node3", "Event"])
def test_where_nothing_travels_is_said_at_once(pattern):
    """With what there is instead of a silence for ever."""
    with pytest.raises(PatternError, match=r"there are observation\.stamps, .* and the buckets clocks, inventory"):
        target(pattern)
