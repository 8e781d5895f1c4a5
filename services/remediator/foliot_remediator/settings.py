"""``[remediator]``: its policies, its budgets, and the evidence that it asks for."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

Policy = Literal["off", "advise", "act"]
_POLICIES: tuple[Policy, ...] = ("off", "advise", "act")


def strictest(*policies: Policy) -> Policy:
    """The one of some policies that permits least."""
    return min(policies, key=_POLICIES.index)


class PlacementRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[remediator.placements]]``: the primary way of one node's traffic to one service address."""

    node: str
    """Name of the node that sends."""
    peer: str
    """Name of the node that has the service address."""
    rail: str
    """Rail that the service address belongs to."""
    via: str
    """Rail that carries it."""
    entropy: int
    """Index of the UDP source port in `node.entropies`, from 0."""
    pinned: bool = True
    """Whether nothing moves it for a gain. If not, it is only where the traffic begins."""


class SpareLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[remediator.spares]]``: what the paths of a spare to a job's ranks must keep before it joins them."""

    job: str = "*"
    """The jobs that it is about: a name, or a pattern such as ``pretrain-*``. Of several, the first counts."""
    hops: int = 0
    """The most routers on a path between the spare and a rank that stays; 0: whatever there are."""
    p99_us: float = 0.0
    """The most that the p99 of the one-way delays between their nodes may be, either way, in the last ten to twenty
    seconds; 0: whatever it is."""

    def __post_init__(self) -> None:
        """Refuses an entry that limits nothing.

        Raises:
            ValueError: it does not; the message names the keys.
        """
        if self.hops < 0 or self.p99_us < 0 or not (self.hops or self.p99_us):
            raise ValueError("field `hops` or `p99_us` must be above 0, and neither below")


class RemediatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The remediator's own section. Times are in seconds."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {
            "restore_paths", "proof_margin_s", "least_confidence", "good_share", "armed_grace_s", "deadline_s",
            "stale_s",
            "clock_bound_s", "retry_s", "attempts", "write_gap_s",
        }
    )  # fmt: skip

    instance: str = "remediator"
    """Names this one among several on the same bus, of which one holds the lease and the others stand by."""

    reroute: Policy = "act"
    """``off`` says what it does not do, ``advise`` publishes commands as advice, ``act`` gives them."""
    restore: Policy = "act"
    improve: Policy = "advise"
    """What becomes of moves off contended links: ``off`` plans none, ``advise`` says what would be moved, ``act`` moves
    it. It can do no more than `reroute` and `restore` may: what gains nothing is taken back."""
    replace: Policy = "advise"
    """What becomes of a training job's rank that is lost, or whose node is drained or has a fault in its hardware, where
    a spare waits: ``off`` only says that nothing is done, ``advise`` says which spare would take its place, ``act``
    gives it the rank."""
    replace_stragglers: Policy = "off"
    """The same of a rank that is slow: for its computation, its data, want of a processor, or as its process is stopped
    again and again. It can do no more than `replace` may."""
    spares: tuple[SpareLimit, ...] = ()
    """Limits of the paths between a spare and the ranks that it joins. A spare beyond them gets no rank, nor does one
    for which they are not measured."""
    policies: dict[str, Policy] = {}
    """Policies of the other verbs, by name. A verb that is not named is ``off``."""

    primary: Literal["first", "hash"] = "hash"
    """Which entropy of its own rail a service address has when all is well. ``first`` is the first; ``hash`` spreads
    pairs over all entropies, the same in both directions."""
    placements: tuple[PlacementRule, ...] = ()
    """Primary ways that are chosen by hand."""

    healthy_within_s: float = 2.0
    """An alternative must have been heard this recently: ten probes of the slow sweep."""

    probation_s: float = 5.0
    """How long what was lost must be good before it is used again, the first time. Each loss doubles it, with no end
    to attempts."""
    longest_probation_s: float = 60.0
    """The longest that a NIC or path must be good before it is used again. Damping holds what flaps on; this is for
    what comes and goes more slowly than that."""
    forget_s: float = 1_800.0
    """A NIC or path that was good for this long is as if it had never been lost: two half-lives of the damping's
    default."""

    moves_per_minute: int = 600
    """Service addresses that may be sent another way in a minute, there or back, by a route each or a whole rail by
    one rule. Traffic of lost NICs is counted by itself, and one lost NIC may always be left. Traffic that comes home
    takes half of the budget at most."""
    improvements_per_minute: int = 60
    """Service addresses that may be moved off contended links in a minute. They take nothing from `moves_per_minute`;
    what is taken back comes home by that."""
    replacements_at_once: int = 16
    """Ranks of a job that may be replaced at the same time: those of two nodes of eight GPUs. More at once is no failure
    of nodes."""
    replacements_per_hour: int = 64
    """Ranks of all jobs that may be replaced in an hour: those of eight such nodes."""
    replacements_without_progress: int = 3
    """How often in a row a job's ranks may be replaced without a step of the job. Then its program is at fault, and
    nothing is replaced until it makes one."""
    replace_hung_s: float = 120.0
    """How long a rank whose process runs may make no step until it is replaced. It may be at work, as one that writes a
    checkpoint for all others. One that is gone, cut off, or stopped where its agent sees that, is replaced at once."""
    nics_away: int = 64
    """NICs that may be away at once; the smaller of this limit and the share holds. One always may. More at once is
    no failure of NICs, and moving would not help."""
    nics_away_share: float = 0.25
    """The same limit as a share of the fleet's NICs."""
    nodes_at_once: int = 2_048
    """Nodes that may be commanded and have not answered yet; the rest of a plan waits for them."""

    clock_stale_s: float = 3.0
    """A node whose clock said nothing of its bound for this long is not commanded: it could not tell a deadline."""
    review_s: float = 1.0
    """How often each node's backups are looked through."""

    def __post_init__(self) -> None:
        """Refuses numbers that make no sense.

        Raises:
            ValueError: one does not; the message names the key.
        """
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and value <= 0:
                raise ValueError(f"field `{name}` must be above 0, got {value}")
        if self.nics_away_share > 1:
            raise ValueError(f"field `nics_away_share` is a share, at most 1, got {self.nics_away_share}")
        if self.longest_probation_s < self.probation_s:
            raise ValueError(f"field `longest_probation_s` must be at least probation_s ({self.probation_s:g})")
