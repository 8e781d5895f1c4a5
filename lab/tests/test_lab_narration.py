"""What the lab tells while it runs."""

import asyncio
import io

import pytest

from foliot_lab.narration import Narrator
from foliot_lab.truth import LabTime, Truth
from foliot_schemas import Outcome


@pytest.mark.parametrize(
    ("armed", "words"),
    [
        ((True,), "reroute: 1 by itself\n"),
        ((True, True), "reroute: 2 by themselves\n"),
        ((True, False, False), "reroute: 2 done, 1 by itself\n"),
    ],
)
async def test_nodes_that_act_unasked_are_counted_in_proper_words(armed, words):
    """What belongs to one fault is one line."""
    out = io.StringIO()
    narrator = Narrator(LabTime.starting_now(), Truth({}), out)
    for number, unasked in enumerate(armed):
        node = f"node{number}"
        narrator.outcome(
            Outcome(id=node, command="c", verb="reroute", node=node, status="done", armed=unasked, fault="f")
        )

    async with asyncio.timeout(30):
        while not out.getvalue():  # noqa: ASYNC110 - the narrator sets no event
            await asyncio.sleep(0.05)
    assert out.getvalue().endswith(words)
