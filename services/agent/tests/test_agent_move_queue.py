"""What is long never keeps what is urgent waiting."""

from __future__ import annotations

import asyncio
import errno

import pytest

from foliot.node.addressing import describe
from foliot_agent.actuators.overlay import OverlayActuator
from foliot_agent.control.move_queue import MoveQueue
from foliot_agent.core.desired_diff import Wanted
from foliot_agent.core.failed_links import FailedLinks
from foliot_agent.core.overlay_layout import BACKUP_TABLE, Layout, Route, Rule
from foliot_lab.services.emulated_actuator import NoKernel
from foliot_schemas import Placement, Reroute, Restore
from patience import patience
from virtual_clock import VirtualClock

PEERS = 200


class Slow(NoKernel):
    """Each turn takes one of the event loop, and is written down."""

    def __init__(self, peers) -> None:
        self.turns: list[tuple[str, ...]] = []
        self.fails: set[str] = set()
        """Names of peers of whose routes none is put."""
        self._peers = {nic.service_address: peer.name for peer in peers for nic in peer.nics}

    async def change(self, requests):
        """See `NoKernel`."""
        if not requests:
            return []
        await asyncio.sleep(0)
        self.turns.append(tuple(map(self._words, requests)))
        refused = [isinstance(each.what, Route) and self._peer(each) in self.fails for each in requests]
        return [errno.ENETDOWN if each else 0 for each in refused]

    @property
    def done(self) -> list[str]:
        """What was asked for, in order."""
        return [words for turn in self.turns for words in turn]

    def turn_of(self, words: str) -> int:
        """The turn in which this was asked for."""
        return next(number for number, turn in enumerate(self.turns) if words in turn)

    def _peer(self, request) -> str:
        return self._peers[request.what.destination]

    def _words(self, request) -> str:
        if isinstance(request.what, Rule):
            return f"{'away' if request.verb == 'put' else 'back'} rail{request.what.table % 100}"
        backup = request.what.table >= BACKUP_TABLE
        return f"{'arm' if backup else 'place'} {self._peer(request)} by {request.what.device}"

    async def until(self, count: int) -> None:
        """Waits for that many turns."""
        async with asyncio.timeout(patience(20)):
            while len(self.turns) < count:  # noqa: ASYNC110 - the turns are the event
                await asyncio.sleep(0)


def placed(peer: int, rail: str = "rail0", via: str = "rail1") -> Placement:
    """A placement."""
    return Placement(peer=f"node{peer}", rail=rail, via=via, entropy=0)


BACKUPS = tuple(placed(peer) for peer in range(1, PEERS + 1))


@pytest.fixture
def clock():
    """The node's."""
    return VirtualClock()


@pytest.fixture
async def move_queue(settings_of, clock):
    """Of a node with many peers, of which the first ten are armed."""
    layout, peers = Layout.of(settings_of(0)), [describe(settings_of(index)) for index in range(1, PEERS + 1)]
    kernel = Slow(peers)
    actuator = OverlayActuator(None, kernel, layout, kernel)
    for peer in peers:
        await actuator.welcome(peer)
    await actuator.arm(*BACKUPS[:10])
    kernel.turns.clear()
    made = MoveQueue(actuator, FailedLinks(layout, "boot1"), clock)
    made.kernel = kernel
    return made


async def test_a_loss_does_not_wait_for_backups_that_are_being_armed(move_queue):
    """It waits for one of them, and the others come after it."""
    following = asyncio.create_task(move_queue.follow(Wanted(backups=BACKUPS), act=True))
    await move_queue.kernel.until(2)
    move_queue._losses._own["rail0"] = "fault"
    assert (await move_queue.flee("rail0")).status == "done"
    assert move_queue.kernel.turn_of("away rail0") <= 3
    await following
    assert set(move_queue.routing.backups.values()) == set(BACKUPS)


async def test_a_loss_does_not_wait_for_a_command_and_what_it_killed_is_not_placed(move_queue):
    """The command's ways by the lost NIC are not taken; those that were go on."""
    homes = tuple(placed(peer, rail="rail1", via="rail0") for peer in range(1, PEERS + 1))
    command = asyncio.create_task(move_queue.apply(Reroute(placements=homes)))
    await move_queue.kernel.until(2)
    move_queue._losses._own["rail0"] = "fault"
    await move_queue.flee("rail0")
    assert move_queue.kernel.turn_of("away rail0") <= 3
    move = await command
    assert move.status == "done"
    assert sum(words.startswith("place") for words in move_queue.kernel.done) <= 3 * 32
    await move_queue.mend()
    assert {move_queue.routing.way(("node1", rail)).via for rail in ("rail0", "rail1")} == {"rail1"}


async def test_a_loss_does_not_wait_for_a_command_that_goes_on(move_queue):
    """The loss concerns none of its ways."""
    others = tuple(Placement(peer=f"node{peer}", rail="rail1", via="rail1", entropy=1) for peer in range(1, PEERS + 1))
    command = asyncio.create_task(move_queue.apply(Reroute(placements=others)))
    await move_queue.kernel.until(2)
    move_queue._losses._own["rail0"] = "fault"
    await move_queue.flee("rail0")
    assert move_queue.kernel.turn_of("away rail0") <= 3
    assert (await command).status == "done"
    assert {way for way in move_queue.routing.placements.values() if way.rail == "rail1"} == set(others)


async def test_a_command_that_was_overtaken_by_the_loss_of_its_way_is_refused(move_queue):
    """Nothing of it was done."""
    first = asyncio.create_task(move_queue.apply(Reroute(placements=(placed(1), placed(2)))))
    second = asyncio.create_task(move_queue.apply(Reroute(placements=(placed(3), placed(4)))))
    await move_queue.kernel.until(1)
    move_queue._losses._own["rail1"] = "fault"
    assert (await first).status == "done"
    assert ((await second).status, (await second).moved_ns) == ("refused", 0)


async def test_a_later_set_of_backups_comes_after_an_earlier_one_whole(move_queue):
    """They are not mixed: what the later one does not have is disarmed."""
    first = asyncio.create_task(move_queue.follow(Wanted(backups=BACKUPS), act=True))
    await move_queue.kernel.until(2)
    await move_queue.follow(Wanted(backups=BACKUPS[50:60]), act=True)
    await first
    assert set(move_queue.routing.backups.values()) == set(BACKUPS[50:60])


async def test_a_backup_that_cannot_be_armed_keeps_no_other_from_it(move_queue):
    """As one by a NIC that is out: it is said, and the others stand."""
    move_queue.kernel.fails = {"node20"}
    move = await move_queue.follow(Wanted(backups=BACKUPS), act=True)
    assert (move.status, move.reason) == ("failed", "route to 10.200.0.21 by fo1e0: Network is down")
    assert set(move_queue.routing.backups.values()) == set(BACKUPS) - {placed(20)}


async def test_a_backup_in_use_is_not_replaced_by_one_that_has_lost_a_nic(move_queue):
    """The value was written before its writer knew of the loss."""
    move_queue._losses._own["rail0"] = "fault"
    await move_queue.flee("rail0")
    await move_queue.follow(Wanted(backups=(placed(1, via="rail0"), *BACKUPS[1:])), act=True)
    assert move_queue.routing.way(("node1", "rail0")) == placed(1)


@pytest.fixture
def lost_by_peers(move_queue):
    """More peers have lost their NIC on rail0 than are moved in a turn."""
    move_queue._losses._peers |= {(f"node{peer}", "rail0"): 1 for peer in range(1, 41)}
    return move_queue._losses._peers


async def test_a_detour_beside_a_returning_rail_is_not_taken_by_what_needs_none_any_more(move_queue, lost_by_peers):
    """The last peer has its NIC back while the first ones' routes are put."""
    move_queue.routing.away.add("rail0")
    returning = asyncio.create_task(move_queue.apply(Restore(back=("rail0",))))
    await move_queue.kernel.until(2)
    assert len(move_queue.kernel.turns[1]) < len(lost_by_peers)
    del lost_by_peers["node40", "rail0"]
    assert (await returning).status == "done"
    assert [move_queue.routing.way((peer, "rail0")).via for peer in ("node1", "node39", "node40")] == [
        "rail1", "rail1", "rail0"
    ]  # fmt: skip


async def test_a_detour_that_the_kernel_refuses_keeps_no_other_from_its_traffic(move_queue, lost_by_peers):
    """In its own turn and in later ones."""
    move_queue.kernel.fails = {"node1"}
    move = await move_queue.mend()
    assert (move.status, move.reason) == ("failed", "route to 10.200.0.2 by fo1e0: Network is down")
    ways = [move_queue.routing.way((f"node{peer}", "rail0")).via for peer in range(1, 41)]
    assert ways == ["rail0", *["rail1"] * 39]


async def test_detours_beside_a_rail_that_was_back_already_are_told(move_queue, lost_by_peers):
    """Something was moved."""
    move = await move_queue.apply(Restore(back=("rail0",)))
    assert (move.status, move.moved_ns > 0) == ("done", True)


async def test_a_rail_is_back_though_the_kernel_refuses_a_detour_beside_it(move_queue, lost_by_peers):
    """Who asked for it would else believe that all of it is still away; what failed is said."""
    move_queue.routing.away.add("rail0")
    move_queue.kernel.fails = {"node1"}
    move = await move_queue.apply(Restore(back=("rail0",)))
    assert (move.status, move.reason) == ("done", "route to 10.200.0.2 by fo1e0: Network is down")
    assert not move_queue.routing.away


async def test_a_value_decided_before_a_command_does_not_undo_it(move_queue, clock):
    """As the bus comes back, the command may come first.

    For a moment, traffic would go back to the dead way, or away from the mended.
    """
    decided_ns = clock.now_ns()
    stale = Wanted(away=("rail0",), placements=(placed(11, via="rail0"), placed(12)), backups=BACKUPS)
    clock.advance(1)
    await move_queue.apply(Reroute(away=("rail0",)))
    await move_queue.apply(Reroute(back=("rail0",), placements=(placed(11),)))
    before = list(move_queue.kernel.done)

    await move_queue.follow(stale, act=True, decided_ns=decided_ns)

    assert not move_queue.routing.away
    assert move_queue.routing.way(("node11", "rail0")) == placed(11)
    moves = [done for done in move_queue.kernel.done[len(before) :] if not done.startswith("arm")]
    assert moves == []


async def test_what_no_command_has_turned_since_follows_an_older_value(move_queue, clock):
    """Else a move would be lost whose own command had not arrived."""
    decided_ns = clock.now_ns()
    clock.advance(1)
    await move_queue.apply(Reroute(placements=(placed(11),)))
    await move_queue.follow(
        Wanted(away=("rail1",), placements=(placed(12),), backups=(placed(13, "rail1", "rail0"),)),
        act=True, decided_ns=decided_ns,
    )  # fmt: skip
    assert move_queue.routing.away == {"rail1"}
    assert move_queue.routing.way(("node12", "rail0")) == placed(12)


@pytest.mark.parametrize("after_ns", [0, 1])
async def test_a_value_decided_later_than_the_command_is_followed(move_queue, clock, after_ns):
    """And one of the same moment, which knows of the command."""
    await move_queue.apply(Reroute(placements=(placed(11),)))
    await move_queue.follow(
        Wanted(placements=(placed(11, via="rail0"),)), act=True, decided_ns=clock.now_ns() + after_ns
    )
    assert move_queue.routing.way(("node11", "rail0")) == placed(11, via="rail0")


async def test_commands_about_peers_that_have_left_are_forgotten(move_queue):
    """Memory does not grow as nodes come and go."""
    await move_queue.apply(Reroute(placements=BACKUPS))
    for peer in range(1, PEERS + 1):
        move_queue.routing.forget(f"node{peer}")
    await move_queue.apply(Reroute(back=("rail0",)))
    assert move_queue._placed_ns == {}
