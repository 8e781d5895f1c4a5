"""A receiver's claim that a path is silent, and what it takes to believe it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from foliot_detector.core.state.full_queues import CONGESTION_NS, FullQueues
from foliot_detector.core.state.inventory import ALIVE_NS
from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.state.inventory import Inventory, Sign
    from foliot_detector.core.state.path_table import Delays
    from foliot_schemas.event import Evidence
    from foliot_schemas.names import Path

LEAST_INTERVALS = 2
"""Probe intervals in a silence time, at least."""
_SETTLE_NS = 15_000_000
"""How long a silence waits for the ports at its ends to speak. The kernel's link message takes a few milliseconds to
get here. One cause is to make one event."""
_TRANSIT_NS = 40_000_000
"""How long a probe whose sending is proven may take to be heard. It may wait in two full queues, and for a turn of
the scheduler at each end. A full queue of 200 packets of 1,500 bytes takes 12 ms at 200 Mb/s. Where twice the
longest delay that either end saw lately is more, the probe gets that. A receiver dates its word by when it read its
sockets dry, so nothing is added for that."""
_QUICK_TRANSIT_NS = 20_000_000
"""The same where the clocks show that no queue at either end was full lately. The lateness of both ends in the last
seconds is added. Of 100 probes a second, a silence is noticed after 40 ms, when the first one missed is 30 ms old."""
_COMMON_MODE_NS = 500_000_000
"""How long a silence waits where nothing else came through between its two hosts since. A host or hypervisor that
stands still, for up to 0.4 s at a time, holds up all of its NICs. Its receiver takes the claim back by then."""
_MARGIN_NS = 30_000_000
"""By how much the arrivals here of two nodes' messages may be wrong about what came first."""
_DEAF_NS = 100_000_000
"""How long a receiver that hears nobody at all may take to read what waits in its sockets."""
_RECOVERY_NS = 1_500_000_000
"""How long a NIC or process that came back may take until its paths speak. With the carrier the kernel forgot its
neighbours, and asks for an address once a second (``retrans_time_ms``): 1.2 s, if the first question was lost."""
FRESH_NS = 150_000_000
"""How old the receiver's last word may be. By default nodes speak every 100 ms; where they speak more seldom, the
verdict comes with the next word. Behind an older word, a queue may hold another that says the opposite. An older
word will do once the silence has lasted for as long as the word is old: a mere stall does not."""
_MAPPED_NS = 10_000_000
"""By how much the promptest words of two nodes may differ in how long they took."""
_LATELY_NS = 1_000_000_000
"""Five probes of the slow sweep: a path not heard for longer was silent before."""
_DELAYS = 2
"""A proven probe has this many times the longest delay that was seen lately to arrive."""
_LONGEST_TRANSIT_NS = 600_000_000
"""The most time that a proven probe has. It leaves the rest of a second to find a silence and to move."""
_CHANCE = 5
"""Probes that must be missing where a queue at either NIC was full lately, or nobody knows whether one was. A full
queue loses one small probe in a hundred, and most padded ones. One probe in three is padded, so chance soon loses
three in a row."""
_SEVERAL = 2
"""Probes of a row that all waited. One alone may have come while its host was late."""


@dataclass(slots=True)
class Claim:
    """Times `_here_ns` are on the detector's timeline, the others by the receiver's reference time."""

    path_id: int
    path: Path
    name: str
    since_ns: int
    """When the receiver last heard the path."""
    since_here_ns: int
    said_ns: int
    said_here_ns: int
    bound_ns: int
    """The bound of the receiver's clock; -1: not synchronised."""
    owed_ns: int
    """Half of the silence: at least a probe interval of the path. A probe heard later than this after the path's
    last one was heard after the trouble began, as the next probe was due by then."""
    confirmed_ns: int
    """When the receiver last said that it still had not heard the path."""
    confirmed_here_ns: int
    sequence: int = 0
    """The highest probe that the receiver had heard of the path; 0: it does not say."""
    told: Sign | None = None
    """What the receiver itself knows of the sender: that it sent on its other paths when a further probe of this one was
    due. None: it does not say."""
    remembered: bool = True
    """The receiver has named that probe in all words since. So it is the same process, and reads what waited for it."""
    first: Sign | None = None
    """The first word of the sender that it has sent since."""
    siblings: NDArray[np.intp] | None = None
    """Paths between the same two nodes by other NICs; None: not looked for yet."""
    witness: str = ""
    """The node that shows that the sender sent on; empty: nobody yet."""
    rest_ns: int = 0
    """No news can decide it before then."""
    look_ns: int = 0
    """It may be decided then without news; of the past: by news alone."""
    timed_ns: int = 0
    """The last of these that was noted."""
    down: str = ""
    """The NIC at one of its ends whose port is down: only that port's return can decide it; empty: none is."""
    waits_for: str = ""
    """The same, as `ClaimQueue` has it."""
    news: tuple[int, int, int] = (-1, -1, -1)
    """The facts on which the last search for a witness rested, see `Judge`."""
    sent_sequence: int = 0
    """The number of the probe that it sent then."""
    transit_ns: int = 0
    """How long that probe was given to arrive."""
    missing: int = 1
    """Probes that the sender must have sent since."""
    controlled: bool = False
    """Other probes between the two hosts arrived meanwhile."""

    sender: str = field(init=False)
    receiver: str = field(init=False)
    """The nodes at the path's beginning and at its end."""

    def __post_init__(self) -> None:
        self.sender, self.receiver = node_of(self.path.source), node_of(self.path.destination)


class Judge:
    """Says when a claim may be believed."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._queues = FullQueues(inventory.paths)

    def note(self, seen: Delays) -> None:
        """Notes how long probes waited. A queue never delays them by more than `_TRANSIT_NS`."""
        rows = seen.rows
        least_ns = rows["least_ns"]
        if least_ns.max() < CONGESTION_NS:
            return
        waited = (rows["received"] >= _SEVERAL) & (least_ns >= CONGESTION_NS) & (least_ns <= _TRANSIT_NS)
        self._queues.note(seen.ids[waited], seen.at_here_ns - seen.interval_ns, seen.at_here_ns)

    def is_known(self, claim: Claim) -> bool:
        """Whether both ends are in the inventory still."""
        return claim.path.source in self._inventory.nics and claim.path.destination in self._inventory.nics

    def is_ripe(self, claim: Claim, now_ns: int) -> bool:
        """Whether the path is dead: its sender was seen to send, no port explains it, and nothing is still on its way.

        If not, the claim says when to look again, or which port must be back first. Else news of its nodes decides.
        """
        inventory = self._inventory
        claim.down = next(filter(inventory.is_down, claim.path[:2]), "")
        if claim.down:
            return False  # once it is back it has `_RECOVERY_NS` before anything is believed of it
        back_ns = max(inventory.back_ns(claim.path.source), inventory.back_ns(claim.path.destination))
        # A path that was heard since then has shown already that both its ends are back.
        if back_ns >= max(claim.since_here_ns, 1) and now_ns < back_ns + _RECOVERY_NS:
            claim.rest_ns = claim.look_ns = back_ns + _RECOVERY_NS
            return False
        lag_ns = now_ns - claim.confirmed_here_ns
        if lag_ns > max(FRESH_NS, claim.confirmed_ns - claim.said_ns):
            # The receiver is gone, or what it has said since waits to be read: here, in the bus, or in its own process.
            return False
        listening_ns = inventory.listening_ns.get(claim.receiver, 0)
        if (
            claim.remembered
            and claim.sequence
            and claim.confirmed_here_ns >= listening_ns + claim.owed_ns + _TRANSIT_NS
        ):
            # A receiver that stood still has read all that waited for it as soon as it has listened for a probe
            # interval and some.
            listening_ns = 0
        after_ns = max(back_ns, listening_ns)
        news = (inventory.news.get(claim.sender, 0), claim.confirmed_here_ns, after_ns)
        if not claim.witness and news == claim.news:
            return False  # nobody has said anything that the last search did not find
        claim.news, claim.witness = news, ""
        is_full = self._may_be_full(claim, now_ns)
        claim.missing = _CHANCE if is_full else 1
        claim.transit_ns = self._transit(claim, now_ns, is_full=is_full)
        sign = self._prove(claim, after_ns, back_ns)
        if sign is None:
            return False
        claim.witness, claim.sent_sequence = sign.witness, sign.sequence
        claim.controlled = self._is_controlled(claim, sign)
        settled_ns = claim.said_here_ns + _SETTLE_NS
        if not claim.controlled:
            claim.look_ns = claim.said_here_ns + _COMMON_MODE_NS
        else:
            claim.look_ns = claim.said_here_ns + _DEAF_NS if self.is_deaf(claim) else settled_ns
        claim.rest_ns = settled_ns  # nor does a deaf one hear again before then
        return now_ns >= claim.look_ns

    def is_deaf(self, claim: Claim) -> bool:
        """Whether the receiver has heard nobody at all since, on any NIC."""
        return self._inventory.hearing_ns.get(claim.receiver, 0) <= claim.since_here_ns + claim.owed_ns

    def _transit(self, claim: Claim, now_ns: int, *, is_full: bool) -> int:
        """How long a probe of the path may be on its way.

        Where probes of either host took long lately, this one may as well. Behind a full queue, it also waits for as
        long as a host comes late to everything else: one whose processors are taken forwards nothing.
        """
        longest_ns, late_ns = (
            max((peaks[node].at(now_ns) for node in (claim.sender, claim.receiver) if node in peaks), default=0)
            for peaks in (self._inventory.delay_ns, self._inventory.late_ns)
        )
        least_ns = _TRANSIT_NS if is_full else min(_TRANSIT_NS, _QUICK_TRANSIT_NS + late_ns)
        return max(least_ns, min(_DELAYS * longest_ns + late_ns * is_full, _LONGEST_TRANSIT_NS))

    def _may_be_full(self, claim: Claim, now_ns: int) -> bool:
        """Whether a queue that the path's probes wait in was full lately."""
        if min(claim.bound_ns, self._inventory.bound_ns.get(claim.sender, -1)) < 0:
            return True
        return bool(self._queues.are_full(np.array([claim.path_id]), now_ns)[0])

    def _is_controlled(self, claim: Claim, sign: Sign) -> bool:
        """Whether anything else came through between the two hosts since the missing probe was sent.

        Where no other path between them is probed, both hosts must have been heard or have heard something since. One
        probe may be lost in a full queue while its sender is late with the next. So if only one is known to be missing,
        what came through on another path counts, from when the next was due.
        """
        table = self._inventory.paths
        one = sign.sequence == claim.sequence + 1
        from_ns = max(sign.here_ns + (claim.owed_ns if one else 0), claim.confirmed_here_ns - FRESH_NS)
        if claim.siblings is None:
            claim.siblings = self._inventory.siblings(claim.path)
        heard_ns = table.heard_ns[claim.siblings]
        lately = claim.siblings[heard_ns > claim.since_here_ns - _LATELY_NS]
        # By a NIC that is down nothing can come through, and that is known.
        present = [place for place in lately.tolist() if not self._inventory.has_down_end(table.path(place))]
        if present:
            return bool((table.heard_ns[present] >= from_ns).any())
        return not one and all(self._inventory.stirred_ns(node) >= from_ns for node in (claim.sender, claim.receiver))

    def _prove(self, claim: Claim, after_ns: int, back_ns: int) -> Sign | None:
        """Looks for a sign that the sender sent what the receiver has not heard in good time.

        At best that is the very probe, by its number.

        It compares two nodes' times on the timeline, less a margin, which no wrong clock can bend. It also compares
        them by reference time, where both clocks are synchronised: no delay of the bus can bend that.
        """
        all_words = self._inventory.own_words(claim.sender, claim.path_id)
        words = [sign for sign in all_words if self._is_later(sign, claim, after_ns)]
        if claim.told is not None and self._is_later(claim.told, claim, after_ns):
            words.insert(0, claim.told)  # only where its own words show nothing: it tells of one probe alone
        if claim.first is None or not self._is_later(claim.first, claim, back_ns):
            claim.first = next((sign for sign in all_words if self._is_later(sign, claim, back_ns)), None)
        if claim.first is not None and self._is_later(claim.first, claim, after_ns):
            words.insert(0, claim.first)
        # The latest first: what came through since then says more. The first of all is kept, as a probe may be given
        # longer than words are remembered.
        for sign in reversed(words):
            if self._is_overdue(sign, claim):
                return sign
        alive_from_ns = max(claim.since_here_ns, after_ns, self._inventory.unbroken_ns.get(claim.sender, 0))
        alive_ns = max(ALIVE_NS, claim.missing * claim.owed_ns)
        for sign in reversed(self._inventory.signs.get(claim.sender, ())):
            if sign.here_ns <= alive_from_ns + alive_ns:
                break  # and the others are older still
            if self._is_after(sign, claim, alive_from_ns, alive_ns) and self._is_overdue(sign, claim):
                return sign
        return None

    def _is_later(self, sign: Sign, claim: Claim, after_ns: int) -> bool:
        """Whether a sender speaks of a later probe than the receiver heard last, and both ends were there by then."""
        if sign.sequence and claim.sequence:
            is_enough = sign.sequence >= claim.sequence + claim.missing
            return is_enough and sign.here_ns > after_ns + (_MARGIN_NS if after_ns else 0)
        return self._is_after(sign, claim, max(claim.since_here_ns, after_ns), (claim.missing - 1) * claim.owed_ns)

    def _is_after(self, sign: Sign, claim: Claim, after_ns: int, by_ns: int) -> bool:
        """Whether a sign lies so much later than the silence began."""
        is_known = min(sign.bound_ns, claim.bound_ns) >= 0
        return sign.here_ns > after_ns + by_ns + _MARGIN_NS and (
            not is_known or sign.at_ns > claim.since_ns + by_ns + self._doubt_ns(sign, claim)
        )

    def _is_overdue(self, sign: Sign, claim: Claim) -> bool:
        """Whether the receiver still has not heard the path, although the sign's probe had the time to arrive."""
        heard_by_ns = sign.here_ns + claim.transit_ns
        if min(sign.bound_ns, claim.bound_ns) < 0:
            return claim.confirmed_here_ns >= heard_by_ns + _MARGIN_NS
        return (
            claim.confirmed_here_ns >= heard_by_ns - _MAPPED_NS
            and claim.confirmed_ns >= sign.at_ns + claim.transit_ns + self._doubt_ns(sign, claim)
        )

    def _doubt_ns(self, sign: Sign, claim: Claim) -> int:
        """By how much the two clocks may be wrong; of one clock, nothing."""
        return 0 if sign.witness == claim.receiver else sign.bound_ns + claim.bound_ns


def _lateness(claim: Claim, inventory: Inventory, now_ns: int) -> Evidence:
    """How late both ends were, and how busy their hosts. Only behind a full queue, a verdict waits for it."""
    told: Evidence = {}
    for end, node in (("sender", claim.sender), ("receiver", claim.receiver)):
        peak, load = inventory.late_ns.get(node), inventory.load.get(node)
        told[f"{end}_late_ms"] = 0.0 if peak is None else peak.at(now_ns) / 1e6
        if load is not None:
            told[f"{end}_stolen"], told[f"{end}_waiting"] = round(load.stolen, 4), round(load.waiting, 4)
            told[f"{end}_squeezed"] = load.squeezed
    return told


def evidence(claim: Claim, inventory: Inventory, now_ns: int) -> Evidence:
    """Numbers by which a person may doubt a verdict, and tell a link from a NIC: which siblings are silent or spoke."""
    table = inventory.paths
    since_ns = claim.since_here_ns + claim.owed_ns
    leaving, entering = table.leaving(claim.path.source), table.entering(claim.path.destination)
    between = leaving[np.isin(leaving, entering)]
    back = table.id_of(claim.path.back)
    counts: Evidence = {}
    for siblings, places in (("from_source_nic", leaving), ("into_destination_nic", entering), ("between", between)):
        counts[f"silent_{siblings}"] = int(table.silent[places].sum())
        counts[f"speaking_{siblings}"] = int((table.heard_ns[places] > since_ns).sum())
        counts[f"paths_{siblings}"] = len(places)
    return (
        counts
        | _lateness(claim, inventory, now_ns)
        | {
            "last_heard_ns": claim.since_ns,
            "last_heard_sequence": claim.sequence,
            "witness": claim.witness,
            "sent_on_path": claim.witness == claim.sender,
            "sent_sequence": claim.sent_sequence,
            "transit_ms": claim.transit_ns / 1e6,
            "missing": claim.missing,
            "others_came_through": claim.controlled,
            "reverse_speaking": back >= 0 and int(table.heard_ns[back]) > since_ns,
            "reverse_silent": back >= 0 and bool(table.silent[back]),
        }
    )
