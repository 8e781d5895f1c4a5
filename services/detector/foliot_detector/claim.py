"""A receiver's claim that a path is silent, and what it takes to believe it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from foliot_schemas.names import node_of

if TYPE_CHECKING:
    from foliot_detector.fleet import Fleet, Sign
    from foliot_detector.settings import DetectorSettings
    from foliot_schemas.names import Path

LEAST_INTERVALS = 2
"""Probe intervals in a silence time, at least."""
_DOWN_AGAIN_NS = 100_000_000
"""How often a path that ends at a port that is down is looked at."""


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
    """Of the receiver's clock; -1: not synchronised."""
    owed_ns: int
    """Half of the silence: at least a probe interval of the path. What was heard later than this after the path's last probe was heard
    after the trouble began, which was when the next probe was due at the latest."""
    confirmed_ns: int
    """When the receiver last said that it still had not heard the path."""
    confirmed_here_ns: int
    witness: str = ""
    """The node that shows that the sender sent on; empty: nobody yet."""
    rest_ns: int = 0
    """No news can decide it before then."""
    look_ns: int = 0
    """It may be decided then without news; of the past: by news alone."""
    timed_ns: int = 0
    """The last of these that was noted."""
    news: tuple[int, int, int] = (-1, -1, -1)
    """What the last search for a witness rested on, see `Judge`."""
    on_path: bool = False
    """The sender says that it sent on this very path."""

    sender: str = field(init=False)
    receiver: str = field(init=False)
    """The nodes at the path's beginning and at its end."""

    def __post_init__(self) -> None:
        self.sender, self.receiver = node_of(self.path.source), node_of(self.path.destination)


class Judge:
    """Says when a claim may be believed."""

    def __init__(self, settings: DetectorSettings, fleet: Fleet) -> None:
        self._fleet = fleet
        self._settle_ns = round(settings.path_settle_ms * 1e6)
        self._transit_ns = round(settings.proof_transit_ms * 1e6)
        self._margin_ns = round(settings.arrival_margin_ms * 1e6)
        self._alive_ns = round(settings.alive_ms * 1e6)
        self._deaf_ns = round(settings.deaf_hold_ms * 1e6)
        self._recovery_ns = round(settings.recovery_s * 1e9)
        self._process_silence_ns = round(settings.process_silence_s * 1e9)

    def is_known(self, claim: Claim) -> bool:
        """Whether both ends are in the inventory still."""
        return claim.path.source in self._fleet.nics and claim.path.destination in self._fleet.nics

    def is_ripe(self, claim: Claim, now_ns: int) -> bool:
        """Whether the path is dead: its sender was seen to send, no port explains it, and nothing is still on its way.

        If not, the claim says when to look again; else news of its sender or receiver decides.
        """
        fleet = self._fleet
        if fleet.is_down(claim.path.source) or fleet.is_down(claim.path.destination):
            # Once it is back it has `recovery_s` before anything is believed of it.
            claim.rest_ns = claim.look_ns = now_ns + min(_DOWN_AGAIN_NS, self._recovery_ns)
            return False
        if now_ns - fleet.lives.on_bus_ns(claim.receiver) > self._process_silence_ns:
            return False  # who is gone cannot take its claim back
        back_ns = max(fleet.back_ns(claim.path.source), fleet.back_ns(claim.path.destination))
        # A path that was heard since then has shown already that both its ends are back.
        if back_ns >= max(claim.since_here_ns, 1) and now_ns < back_ns + self._recovery_ns:
            claim.rest_ns = claim.look_ns = back_ns + self._recovery_ns
            return False
        after_ns = max(claim.since_here_ns, back_ns, fleet.listening_ns.get(claim.receiver, 0))
        news = (fleet.news.get(claim.sender, 0), claim.confirmed_here_ns, after_ns)
        if not claim.witness and news == claim.news:
            return False  # nobody has said anything that the last search did not find
        claim.news, claim.witness = news, ""
        if not self._prove(claim, after_ns):
            return False
        settled_ns = claim.said_here_ns + self._settle_ns
        claim.look_ns = claim.said_here_ns + self._deaf_ns if self.is_deaf(claim) else settled_ns
        claim.rest_ns = settled_ns  # nor does a deaf one hear again before then
        return now_ns >= claim.look_ns

    def is_deaf(self, claim: Claim) -> bool:
        """Whether the receiver has heard nobody at all since, on any NIC."""
        return self._fleet.hearing_ns.get(claim.receiver, 0) <= claim.since_here_ns + claim.owed_ns

    def _prove(self, claim: Claim, after_ns: int) -> bool:
        """Looks for a sign that the sender sent after the silence began, on what the receiver has not heard in good time.

        Two nodes' times are compared by their arrival here, less a margin, which no wrong clock can bend, and, where both clocks are
        synchronised, by reference time as well, which no delay of the bus can.
        """
        for sign in self._fleet.own_words(claim.sender, claim.path_id):
            if self._shows(sign, claim, after_ns, 0):
                claim.witness, claim.on_path = sign.witness, True
                return True
        alive_from_ns = max(after_ns, self._fleet.unbroken_ns.get(claim.sender, 0))
        for sign in reversed(self._fleet.signs.get(claim.sender, ())):
            if sign.here_ns <= alive_from_ns + self._alive_ns:
                break  # and the others are older still
            if self._shows(sign, claim, alive_from_ns, self._alive_ns):
                claim.witness, claim.on_path = sign.witness, False
                return True
        return False

    def _shows(self, sign: Sign, claim: Claim, after_ns: int, by_ns: int) -> bool:
        """Whether a sign lies late enough after the silence began, and early enough for the receiver to have heard by now."""
        if sign.here_ns <= after_ns + by_ns + self._margin_ns:
            return False
        heard_by_ns = sign.here_ns + self._transit_ns
        if min(sign.bound_ns, claim.bound_ns) < 0:
            return claim.confirmed_here_ns >= heard_by_ns + self._margin_ns
        doubt_ns = 0 if sign.witness == claim.receiver else sign.bound_ns + claim.bound_ns
        return (
            claim.confirmed_here_ns >= heard_by_ns
            and sign.at_ns > claim.since_ns + by_ns + doubt_ns
            and claim.confirmed_ns >= sign.at_ns + self._transit_ns + doubt_ns
        )


def evidence(claim: Claim, fleet: Fleet) -> dict[str, float | int | str | bool]:
    """What a person needs to disagree, and to tell a link from a NIC: which of the siblings are silent, and which spoke since.

    A path of the slow sweep that is neither was not due yet.
    """
    table = fleet.paths
    since_ns = claim.since_here_ns + claim.owed_ns
    leaving, entering = table.leaving(claim.path.source), table.entering(claim.path.destination)
    between = leaving[np.isin(leaving, entering)]
    back = table.id_of(claim.path.back)
    counts: dict[str, float | int | str | bool] = {}
    for siblings, places in (("from_source_nic", leaving), ("into_destination_nic", entering), ("between", between)):
        counts[f"silent_{siblings}"] = int(table.silent[places].sum())
        counts[f"speaking_{siblings}"] = table.spoke_since(places, since_ns)
        counts[f"paths_{siblings}"] = len(places)
    return counts | {
        "last_heard_ns": claim.since_ns,
        "witness": claim.witness,
        "sent_on_path": claim.on_path,
        "reverse_speaking": back >= 0 and int(table.heard_ns[back]) > since_ns,
        "reverse_silent": back >= 0 and bool(table.silent[back]),
    }
