"""The page while a fault happens: a cut cable in a real fabric, all services real, seen in a real Chromium."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import TYPE_CHECKING

import forked_lab
import pytest
from playwright.async_api import expect

from lab_report import missing
from patience import patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.net]

SCENARIO = """
[fabric]
hosts = 2
rails = 2
leaves = 2
spines = 2

[services]
"remediator.armed" = "off"
"remediator.probation_s" = 5.0

[workload]
kind = "none"

[[fault]]
at_s = 2
kind = "link-down"
where = "node1.rail0"
for_s = 20

[run]
skip_waits = true
"""
"""The cut is over three seconds after traffic has moved; the rest of its time is a slow machine's."""
READY_MS = 1_000 * patience(240)
"""As long as the lab itself may take on a busy machine, and some."""
RECORD = """
const look = () => {
  const tiles = [...document.querySelectorAll('.tile')];
  if (!window.conditions) {
    if (tiles.length < 4 || tiles.some((tile) => tile.dataset.condition !== 'up')) return;
    window.conditions = {};
  }
  for (const tile of tiles) {
    const seen = window.conditions[tile.dataset.nic] ??= [];
    const now = tile.dataset.condition;
    if (now !== 'unknown' && seen.at(-1) !== now) seen.push(now);
  }
};
new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
"""
"""Keeps every condition that any tile goes through, once all four are up.

It begins with the page: on a busy machine, the test may be late to ask. Nothing is known of a NIC whose probe stands
still, which is no part of the story.
"""


@pytest.fixture
async def address(tmp_path) -> AsyncIterator[str]:
    """Of the gateway of a lab that runs the scenario and goes on."""
    if problems := missing():
        pytest.skip(problems)
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    log = tmp_path / "said"
    with log.open("wb") as said:
        lab = forked_lab.start(
            forked_lab.COMMAND, "lab", "run", "--force", str(scenario), "--stay", "--port", "0",
            "--folder", str(tmp_path / "lab"), said=said,
        )  # fmt: skip
    try:
        yield await told(log, "the API will be at ")
    finally:
        lab.send_signal(signal.SIGINT)
        await asyncio.to_thread(lab.wait, patience(60))


async def told(log: Path, beginning: str) -> str:
    """The origin of the address in a line of the lab's."""
    async with asyncio.timeout(patience(60)):
        while True:
            for line in log.read_text().splitlines():  # noqa: ASYNC240 - a few hundred bytes
                if line.startswith(beginning):
                    return line.split()[-1].removesuffix("/api/v1/")
            await asyncio.sleep(0.05)


async def test_a_fault_is_seen_and_told(page, address):
    """The tile goes red, then moved, then green; the event leads to the trace of all services, and to what was done."""
    await page.add_init_script(RECORD)
    await page.goto(address, timeout=READY_MS)

    event = page.get_by_test_id("event").filter(has_text="node1.rail0 lost its carrier")
    await expect(event).to_have_count(1, timeout=READY_MS)
    await event.click()
    story = page.get_by_test_id("story")
    await expect(story.get_by_role("heading", name="node1.rail0 lost its carrier")).to_be_focused()
    for service in ("probe", "detector", "remediator", "agent", "gateway"):
        await expect(story.locator(f'[data-testid="bar"][data-service="{service}"]').first).to_be_visible()

    # The story goes on while it is open: the way back is the second act of the same fault.
    await expect(story.get_by_text("Moved back")).to_be_visible(timeout=READY_MS)
    await expect(page.locator(".tile.up")).to_have_count(4)
    conditions = await page.evaluate("window.conditions")
    # Where probes stand still after the return, what ends at node1.rail0 is lost anew. No tile is up between. All paths
    # of node0.rail0 end there: their silence may be known before the carrier's loss, and they are most of its own.
    for nic, lost in (("node1.rail0", True), ("node0.rail0", False)):
        first, *away, last = conditions.pop(nic)
        assert (first, last) == ("up", "up")
        assert set(away) in ({"moved"}, {"lost", "moved"})
        assert away[:2] == ["lost", "moved"] or not lost
    assert set(map(tuple, conditions.values())) == {("up",)}

    rows = story.get_by_role("table").get_by_role("row")
    nodes = [f"node{number}" for number in range(2)]
    for verb in ("reroute", "restore"):
        for node in nodes:
            # A node that reads the bucket `paths` first does it by that, and answers the command that it is done already.
            done = rows.filter(has_text=f"{node}").filter(has_text=re.compile(f"{verb}commanded(done|already)"))
            await expect(done.first).to_be_visible()  # there are more if it was lost anew
    await story.get_by_role("button", name="close").click()
    await expect(story).to_have_count(0)
    await expect(event).to_be_focused()
