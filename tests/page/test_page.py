"""The gateway's page in a real Chromium, with the gateway of a real bus behind it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from playwright.async_api import expect

from foliot_schemas import Event, Nic, Node, Outcome, PortState
from foliot_schemas.fault import trace_id
from foliot_schemas.subjects import EVENT, INVENTORY, OUTCOME, PORT
from patience import patience
from ports import port_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from foliot.bus.client import Bus

pytestmark = [pytest.mark.browser, pytest.mark.nats]

NODES = ("node0", "node1", "node2")
RAILS = ("rail0", "rail1")
STREAM = "/api/v1/stream"
NO_WORD = "Not known: there is no word from the gateway. This page goes on trying."
CONTRAST = """() => [...document.querySelectorAll('.tile, .event, .event span, small, .connection, h2, h3, th, .none')]\
.map(element => {
  const channels = colour => colour.match(/[\\d.]+/g).map(Number);
  const background = of => {
    const [r, g, b, a = 1] = channels(getComputedStyle(of).backgroundColor);
    if (a === 1) return [r, g, b];
    const below = of.parentElement ? background(of.parentElement) : [255, 255, 255];
    return [r, g, b].map((value, index) => a * value + (1 - a) * below[index]);
  };
  const luminance = colour => {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [text, paper] = [channels(getComputedStyle(element).color).slice(0, 3), background(element)].map(luminance);
  return [element.className || element.tagName, (Math.max(text, paper) + 0.05) / (Math.min(text, paper) + 0.05)];
})"""
"""The contrast of text and what lies behind it (WCAG 2.2, 1.4.3)."""


class Gateway:
    """A gateway that can be killed and started again at the same address."""

    def __init__(self, bus_url: str, **more: str) -> None:
        port = port_for(self)
        self.address = f"http://127.0.0.1:{port}"
        at = {"FOLIOT_GATEWAY__PORT": str(port), "FOLIOT_GATEWAY__GRPC_PORT": "0", "FOLIOT_BUS__URL": bus_url}
        self._environment = {**os.environ, **at, **more}

    async def start(self) -> None:
        """Starts it; it is not waited for, the page finds it."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "foliot_gateway", env=self._environment, stderr=asyncio.subprocess.DEVNULL
        )

    async def kill(self) -> None:
        """SIGKILL."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@pytest.fixture
async def gateway(nats_server) -> AsyncIterator[Gateway]:
    """A running gateway."""
    running = Gateway(nats_server.settings.url)
    await running.start()
    yield running
    await running.kill()


def node(name: str) -> Node:
    """An inventory record."""
    nics = tuple(
        Nic(name=f"{name}.{rail}", rail=rail, device=rail, address="10.0.0.1", clock=name,
            service_address="10.1.0.1", path_addresses=(), entropies=())
        for rail in RAILS
    )  # fmt: skip
    return Node(name=name, nics=nics)


async def say(bus: Bus, nic: str, *, carrier: bool = True, admin_up: bool = True) -> None:
    """What a probe says of a NIC."""
    name = nic.partition(".")[0]
    state = PortState(
        node=name, nic=nic, at_ns=1, carrier=carrier, admin_up=admin_up, carrier_down_count=1, carrier_up_count=1
    )
    await bus.publish(PORT, state, name)


@contextlib.asynccontextmanager
async def speaking(bus: Bus, *nics: str) -> AsyncIterator[None]:
    """While probes go on speaking of NICs.

    A page that hears nothing for three seconds is not live, and a slow gateway leaves out what waits for one.
    """

    async def go_on() -> None:
        while True:
            for nic in nics:
                await say(bus, nic)
            await asyncio.sleep(0.2)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def happen(bus: Bus, number: int) -> None:
    """An event on the bus."""
    event = Event(
        id=f"e{number}", kind="flap", who=f"node{number}.rail0", state="down", at_ns=number * 10**9, since_ns=number,
        fault=f"boot/node{number}.rail0/carrier-1",
    )  # fmt: skip
    bus.publish_kept(EVENT, event, "flap", event.who)


async def open_page(page, gateway, bus) -> None:
    """A page on a fleet of three nodes, all well."""
    for name in NODES:
        await bus.put(INVENTORY, name, node(name))
    await listening(gateway)
    await page.goto(gateway.address)
    await expect(page.locator(".tile")).to_have_count(len(NODES) * len(RAILS))
    async with speaking(bus, *(f"{name}.{rail}" for name in NODES for rail in RAILS)):
        await expect(page.locator(".tile.up")).to_have_count(len(NODES) * len(RAILS))


async def listening(gateway) -> None:
    """Waits until the gateway does."""
    port = int(gateway.address.rpartition(":")[2])
    async with asyncio.timeout(patience(30)):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return


async def test_a_page_outlives_its_gateway_and_misses_nothing(page, gateway, bus):
    """It says that the connection is lost; when the gateway is back, it has all that happened, each event once."""
    await open_page(page, gateway, bus)
    happen(bus, 1)
    await expect(page.get_by_test_id("event")).to_have_count(1)
    async with speaking(bus, "node0.rail0"):
        await expect(page.get_by_test_id("connection")).to_have_attribute("data-liveness", "live")

    await gateway.kill()
    await expect(page.get_by_test_id("connection")).to_have_attribute(
        "data-liveness", "lost", timeout=1_000 * patience(20)
    )
    await expect(page.get_by_test_id("connection")).to_contain_text("Connection lost")
    await expect(page.locator(".tile.up")).to_have_count(len(NODES) * len(RAILS))
    happen(bus, 2)
    await gateway.start()
    happen(bus, 3)

    await expect(page.get_by_test_id("event")).to_have_count(3, timeout=1_000 * patience(30))
    words = await page.locator(".event .words").all_inner_texts()
    assert words == [f"node{number}.rail0 lost its carrier" for number in (3, 2, 1)]
    await say(bus, "node1.rail1", carrier=False)
    await expect(page.locator('[data-nic="node1.rail1"]')).to_have_attribute("data-condition", "lost")


async def looks_unknown(page) -> None:
    """No count and no claim that nothing has happened."""
    for condition in ("up", "lost", "moved", "unknown"):
        await expect(page.get_by_test_id(f"count-{condition}")).to_have_text("\N{EN DASH}")
    await expect(page.locator("header")).not_to_contain_text("0 node")
    await expect(page.locator("main")).not_to_contain_text("Nothing has happened")


async def test_a_page_that_gets_no_word_says_so_and_shows_no_counts(page, nats_server):
    """Not even zeros; and when the gateway has a place for it, it shows the fleet, here an empty one."""
    gateway = Gateway(nats_server.settings.url, FOLIOT_GATEWAY__STREAMS="1")
    await gateway.start()
    try:
        await listening(gateway)
        async with (
            httpx.AsyncClient(trust_env=False, timeout=patience(30)) as client,
            client.stream("GET", gateway.address + STREAM),
        ):
            await page.goto(gateway.address)
            await expect(page.locator(".fleet .none")).to_have_text(NO_WORD)
            await looks_unknown(page)
            await expect(page.locator(".events .none")).to_have_text(NO_WORD)
            await expect(page.get_by_test_id("connection")).to_have_text(re.compile("No word from the gateway"))

        await expect(page.locator("header .title p")).to_have_text("0 nodes, 0 NICs")
        await expect(page.get_by_test_id("count-up")).to_have_text("0")
        await expect(page.locator(".events .none")).to_have_text("Nothing has happened.")
    finally:
        await gateway.kill()


async def test_a_gateway_that_has_never_reached_the_bus_is_not_taken_for_an_empty_fleet(page):
    """It serves the page, and knows nothing."""
    gateway = Gateway("nats://127.0.0.1:1")
    await gateway.start()
    try:
        await listening(gateway)
        await page.goto(gateway.address)
        await expect(page.get_by_test_id("connection")).to_contain_text("The gateway does not reach the bus")
        await looks_unknown(page)
        for where in (".fleet", ".events"):
            await expect(page.locator(f"{where} .none")).to_have_text(
                "Not known yet: the gateway does not reach the bus."
            )
    finally:
        await gateway.kill()


async def test_what_was_moved_before_an_event_is_told_so_in_words(page, gateway, bus):
    """An armed agent flees from the second flap, finds its traffic moved by the first, and looked before the probe."""
    await open_page(page, gateway, bus)
    flapped_ns = {1: 1_000_000_000_000, 2: 1_007_500_000_000}
    for number, at_ns in flapped_ns.items():
        fault, began_ns = f"boot/node1.rail0/carrier-{number}", at_ns - 10_800_000
        event = Event(
            id=f"{fault}/down", kind="flap", who="node1.rail0", state="down", at_ns=at_ns, since_ns=at_ns, fault=fault
        )
        outcome = Outcome(
            id=f"{fault}/outcome", command=f"armed/{fault}", verb="reroute", node="node1", armed=True, fault=fault,
            status="done" if number == 1 else "already", started_ns=began_ns, moved_ns=began_ns + 1_800_000,
            away=("rail0",),
        )  # fmt: skip
        bus.publish_kept(OUTCOME, outcome, outcome.verb, outcome.node)
        bus.publish_kept(EVENT, event, event.kind, event.who)
    await expect(page.get_by_test_id("event")).to_have_count(2)
    story = page.get_by_test_id("story")

    for place, moved, short in ((0, "7.51 s", "7.51 s before"), (1, "9.00 ms", "9.00 ms before")):
        await page.get_by_test_id("event").nth(place).click()
        await expect(story.locator(".results")).to_have_text(
            f"Moved away {moved} before this fault, on 1 node, which acted by itself, without a command"
        )
        await expect(story.locator("tbody .number")).to_have_text(["10.8 ms before", short, ""])
    assert not re.search(r"[ +]-\d", await page.locator("body").inner_text())


WORDS = """() => {
  window.words = [];
  const look = () => {
    const words = document.querySelector('.connection').textContent;
    if (document.querySelector('.tile.up') && window.words.at(-1) !== words) window.words.push(words);
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, \
characterData: true });
  look();
}"""
"""Keeps what the page says of the connection while it shows NICs that are up."""


async def test_no_bus_is_missed_beside_tiles_that_came_over_it(page, gateway, bus):
    """From the first tile that is up on: the gateway does not wait for its next beat."""
    await listening(gateway)
    await page.goto(gateway.address)
    await expect(page.get_by_test_id("connection")).to_contain_text("No probe has spoken yet")
    await page.evaluate(WORDS)
    await bus.put(INVENTORY, "node1", node("node1"))
    # A gateway that does not know the node yet leaves its words out.
    await expect(page.locator(".tile")).to_have_count(len(RAILS))
    async with speaking(bus, "node1.rail0"):
        await expect(page.locator(".tile.up")).to_have_count(1)
        await expect(page.get_by_test_id("connection")).to_have_attribute("data-liveness", "live")

    said = await page.evaluate("window.words")
    assert any("Live" in words for words in said)
    assert [words for words in said if "bus" in words or "No probe has spoken yet" in words] == []


async def test_what_an_administrator_set_down_is_marked_as_the_trouble_that_its_tile_shows(page, gateway, bus):
    """Both red; and of NICs of which nobody speaks nobody knows where their traffic goes."""
    await open_page(page, gateway, bus)
    await say(bus, "node1.rail0", carrier=False, admin_up=False)
    event = Event(id="set", kind="flap", who="node1.rail0", state="admin-down", at_ns=1, since_ns=1)
    bus.publish_kept(EVENT, event, event.kind, event.who)
    await bus.put(INVENTORY, "node9", node("node9"))

    await expect(page.locator('[data-nic="node1.rail0"]')).to_have_attribute("data-condition", "lost")
    await expect(page.locator(".events li")).to_have_class("trouble")
    await expect(
        page.get_by_role("row", name="node9.rail0 unknown nothing was heard of it yet \N{EN DASH}")
    ).to_be_visible()


OUTLINE = """() => {
  const tile = document.querySelector('.tile[aria-pressed="true"]');
  const [, spread] = /([0-9.]+)px$/.exec(getComputedStyle(tile).boxShadow);
  const [inner, outer] = [tile, tile.closest('.node')].map(each => each.getBoundingClientRect());
  return ['left', 'right', 'top', 'bottom'].map(side => Math.abs(inner[side] - outer[side]) - Number(spread));
}"""
"""How much room the outline of the chosen tile leaves, on each side, of where its node is cut off."""


async def test_the_outline_of_a_chosen_tile_is_whole(page, gateway, bus):
    """What is out of sight is not painted, and that cuts off what goes beyond the edge of a node."""
    await open_page(page, gateway, bus)
    for rail in RAILS:
        await page.locator(f'[data-nic="node1.{rail}"]').click()
        assert min(await page.evaluate(OUTLINE)) >= 0


async def test_a_story_has_one_zero_and_says_which(page, gateway, bus):
    """The fault's beginning, also for an event of it that knows of a later one; the trace's spans count from it too."""
    await open_page(page, gateway, bus)
    began_ns = 1_000_000_000_000
    fault = "boot/node1.rail0/silent"
    for path, late_ns in ((0, 0), (1, 20_000_000)):
        event = Event(
            id=f"{fault}/{path}", kind="path", who=f"node1.rail0>node2.rail0#{path}", state="silent",
            at_ns=began_ns + path * 5_000_000_000, since_ns=began_ns + late_ns, fault=fault,
        )  # fmt: skip
        bus.publish_kept(EVENT, event, event.kind, event.who)
    spans = [
        {"traceId": f"{trace_id(fault):032x}", "spanId": f"{number:016x}", "name": "judge", "kind": 1,
         "startTimeUnixNano": str(began_ns + after_ns), "endTimeUnixNano": str(began_ns + after_ns + 40_000_000)}
        for number, after_ns in ((1, 155_000_000), (2, 887_000_000))
    ]  # fmt: skip
    async with httpx.AsyncClient(trust_env=False, timeout=patience(30)) as client:
        sent = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
        assert (await client.post(gateway.address + "/v1/traces", json=sent)).status_code == 200
    story = page.get_by_test_id("story")

    for place in (0, 1):
        await page.get_by_test_id("event").nth(place).click()
        await expect(story.locator(".zero")).to_contain_text("0 is when the fault began")
        await expect(story.locator(".segment h3")).to_have_text(
            ["What happened within 40.0 ms", "After 887 ms within 40.0 ms"]
        )
        for at, marks in enumerate((range(160, 200, 10), range(890, 930, 10))):
            await expect(story.locator(".axis").nth(at).locator("span")).to_have_text([f"{mark} ms" for mark in marks])
        await expect(story.get_by_test_id("bar").first.get_by_role("button")).to_have_accessible_name(
            re.compile("after 155 ms, took 40.0 ms")
        )


async def test_the_fleet_can_be_walked_by_keys_and_heard(page, gateway, bus):
    """One tile takes part in Tab's order, arrows lead on, each says its state in words; Enter narrows the events."""
    await open_page(page, gateway, bus)
    await say(bus, "node1.rail1", carrier=False)
    lost = page.get_by_role("button", name="node1 rail1 lost: no carrier")
    await expect(lost).to_be_visible()
    happen(bus, 1)
    happen(bus, 2)
    await expect(page.locator(".event")).to_have_count(2)

    await page.keyboard.press("Tab")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowDown")
    await expect(lost).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("heading", name="Events of node1.rail0")).to_be_visible()
    await expect(page.locator(".event")).to_have_count(1)
    await expect(page.get_by_role("row", name="node1.rail1 lost no carrier")).to_be_visible()


async def test_it_can_be_read_on_any_screen(page, gateway, bus):
    """Nothing is wider than the screen, and all text stands out from what lies behind it by 4.5 to 1."""
    await open_page(page, gateway, bus)
    await say(bus, "node1.rail1", carrier=False)
    happen(bus, 1)
    await expect(page.locator(".event")).to_have_count(1)
    await expect(page.locator(".tile.lost")).to_have_count(1)

    for width, scheme in itertools.product((390, 1280), ("light", "dark")):
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=scheme)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, scheme
        contrasts = await page.evaluate(CONTRAST)
        assert len(contrasts) > 8
        assert {name: round(ratio, 1) for name, ratio in contrasts if ratio < 4.5} == {}, (width, scheme)
