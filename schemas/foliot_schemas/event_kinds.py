"""Kinds of event, one record each: the only place that says how events of a kind are treated.

Ownership, sentences, spans, relief, the lab's scope and the page all read these records. An extension adds its own by
`register`. Events of a kind that is not registered decode, and readers pass them over.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - msgspec reads annotations at run time
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Concerned: TypeAlias = Literal["nic", "path", "process", "clock", "rank", "anything"]
"""The type of the thing in `who`: ``node3.rail0``, ``node0.rail0>node3.rail0#2``, ``node3/probe``, ``node3``, and a
job or its rank, ``pretrain-7`` or ``pretrain-7/rank3``. A refusal may concern any of these."""
Publisher: TypeAlias = Literal["detector", "remediator"]

_LONGEST_NAME = 64
"""Characters in the name of a kind or a state, at most: `foliot_schemas.bounds.Word`."""


class Verdict(Protocol):
    """The part of an event that the functions here read; `foliot_schemas.Event` is one."""

    @property
    def kind(self) -> str:
        """See `Event`, as the next five."""

    @property
    def state(self) -> str: ...  # noqa: D102

    @property
    def policy(self) -> str: ...  # noqa: D102

    @property
    def evidence(self) -> Mapping[str, Any]: ...  # noqa: D102

    @property
    def related(self) -> Mapping[str, Sequence[str]]: ...  # noqa: D102

    def number(self, name: str) -> float: ...  # noqa: D102


class EventState(msgspec.Struct, frozen=True):
    """One state of a kind, in one word and in one sentence."""

    name: str
    sentence: str
    """With ``{who}`` in place of the name."""
    is_relief: bool = False
    """Whether it ends a trouble."""


class EventKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of trouble: everything that is known of its events beside their evidence."""

    name: str
    concerns: Concerned
    summary: str
    """The description for the documents: the type of thing concerned (``a NIC``), and what a reader has to know of
    the evidence."""
    states: tuple[EventState, ...]
    """In the order in which a trouble passes through them."""
    publisher: Publisher = "detector"
    """The service that publishes it. The detector resumes the kinds that it publishes."""
    span: str = ""
    """Name of the span in which it is judged; empty: made of the kind's name."""
    begins_trace: bool = True
    """Whether its first event is the root of the fault's trace. If not, an earlier witness has made the root."""
    is_local: bool = False
    """For NICs: whether it tells of the NIC's own link, so that trouble elsewhere on the way does not explain it."""
    words: Callable[[Any], str] | None = None
    """The function that turns an event's evidence into an addition to the sentence, beginning with a space; empty:
    no addition."""

    def __post_init__(self) -> None:
        """Refuses a record whose events could not be told.

        Raises:
            ValueError: a name is empty, too long or there twice, or a sentence does not say ``{who}``.
        """
        names = [state.name for state in self.states]
        for name in (self.name, *names):
            if not 0 < len(name) <= _LONGEST_NAME:
                raise ValueError(f"kind {self.name[:_LONGEST_NAME]!r}: a name has 1 to {_LONGEST_NAME} characters")
        if not names or len({*names}) < len(names):
            raise ValueError(f"kind {self.name}: it needs states, each once, got {names}")
        if mute := [state.name for state in self.states if "{who}" not in state.sentence]:
            raise ValueError(f"kind {self.name}: the sentence of {', '.join(mute)} does not say {{who}}")

    def state(self, name: str) -> EventState | None:
        """Its state of this name; None: it has none, at least not in this version."""
        return next((state for state in self.states if state.name == name), None)

    @property
    def span_name(self) -> str:
        """Name of the span in which it is judged."""
        return self.span or f"judge {self.name}"


_KINDS: dict[str, EventKind] = {}


def register(kind: EventKind) -> None:
    """Adds a kind. The same record again changes nothing.

    Raises:
        ValueError: another kind has its name.
    """
    if _KINDS.setdefault(kind.name, kind) != kind:
        raise ValueError(f"there is a kind of event named {kind.name} already")


def kinds() -> tuple[EventKind, ...]:
    """All registered kinds, Foliot's own first."""
    return tuple(_KINDS.values())


def find(name: str) -> EventKind | None:
    """The kind of this name; None: it is not registered."""
    return _KINDS.get(name)


def published_by(service: str) -> tuple[EventKind, ...]:
    """The kinds that a service publishes."""
    return tuple(kind for kind in _KINDS.values() if kind.publisher == service)


def is_relief(event: Verdict) -> bool:
    """Whether an event ends a trouble; False for a kind or state that is not known here."""
    kind = find(event.kind)
    state = None if kind is None else kind.state(event.state)
    return state is not None and state.is_relief


def detects(event: Verdict) -> bool:
    """Whether an event finds a trouble.

    The end of one does not, nor does a refusal, which follows from another verdict.
    """
    kind = find(event.kind)
    return not is_relief(event) and (kind is None or kind.publisher == "detector")


def losing(event: Verdict) -> str:
    """The thing that a NIC loses, for an event of kind ``nic`` that reports a loss."""
    what = {"out": "what it sends", "in": "what is sent to it"}.get(str(event.evidence.get("direction")), "its packets")
    return f"loses {event.number('loss_share'):.1%} of {what}"


# -- Foliot's own ------------------------------------------------------------------------------------------------------


def _flap_words(event: Verdict) -> str:
    known = event.evidence
    if event.state not in {"up", "down"}:
        return ""
    if "penalty" in known:
        return f" (penalty {known['penalty']:.0f}{', damped' if known.get('suppressed') else ''})"
    return f" (held back: it flaps, by the rule {known.get('rule', '?')})" if known.get("suppressed") else ""


def _path_words(event: Verdict) -> str:
    if not event.evidence.get("full_size_lost"):
        return ""
    return f" (none as large as {event.number('bytes'):,.0f} bytes arrives, others do)"


def _nic_words(event: Verdict) -> str:
    return f" ({losing(event).removeprefix('loses ')})" if event.state == "lossy" else ""


def _contention_words(event: Verdict) -> str:
    flows = event.related.get("flows", ())
    return (
        f" ({len(flows)} flows, the slowest at {event.number('slowest_share'):.0%} of what it could get)"
        if flows and "slowest_share" in event.evidence
        else ""
    )


def _threshold_words(event: Verdict) -> str:
    return f" (p99 {event.number('p99_us'):,.0f} µs, threshold {event.number('threshold_us'):,.0f} µs)"


def _mismatch_words(event: Verdict) -> str:
    if "in_band_us" not in event.evidence:
        return ""
    in_band_us, out_of_band_us = event.number("in_band_us"), event.number("out_of_band_us")
    measured = "its packets take" if event.evidence.get("measured") == "one-way" else "round trips of"
    return f" ({measured} {in_band_us:,.0f} µs, by probes of the path {out_of_band_us:,.0f} µs at least)"


def _hang_words(event: Verdict) -> str:
    known = event.evidence
    if event.state == "broken":
        return f" (rank {event.number('rank'):.0f}: {known.get('reason') or 'it does not say why'})"
    if "collective" not in known:
        return ""
    where = f"{known['collective']} {event.number('number'):.0f} of the group {known.get('group', '?')}"
    return f" ({where}, for {event.number('waited_s'):.1f} s)"


def _hardware_words(event: Verdict) -> str:
    return f" (XID {event.number('xid'):.0f})" if "xid" in event.evidence else ""


def _straggler_words(event: Verdict) -> str:
    if "share" not in event.evidence or event.state == "in-step":
        return ""
    return f" ({event.number('share'):.0%} of the time)"


def _refusal_words(event: Verdict) -> str:
    reason = event.evidence.get("reason")
    return f": {event.policy}" + ("" if reason is None else f" ({reason})")


FLAP = EventKind(
    name="flap", concerns="nic", summary="a NIC", span="judge port change", begins_trace=False, is_local=True,
    words=_flap_words,
    states=(
        EventState("down", "{who} lost its carrier"),
        EventState("up", "{who} has its carrier back", is_relief=True),
        EventState("admin-down", "{who} was set down by an administrator"),
        EventState("admin-up", "{who} was set up by an administrator", is_relief=True),
    ),
)  # fmt: skip
"""The probe hears the kernel first, so the root of a flap's trace is made there."""
PATH = EventKind(
    name="path", concerns="path", summary="a path", span="judge silence", words=_path_words,
    states=(
        EventState("silent", "nothing arrives any more on {who}"),
        EventState("lossy", "{who} loses packets"),
        EventState("speaking", "{who} is heard again", is_relief=True),
    ),
)  # fmt: skip
NIC = EventKind(
    name="nic", concerns="nic", span="judge loss", words=_nic_words,
    summary="a NIC that loses a little of all that it sends (`direction` out) or that is sent to it (in)",
    states=(
        EventState("lossy", "{who} loses some of its packets"),
        EventState("sound", "{who} loses none of its packets any more", is_relief=True),
    ),
)  # fmt: skip
PROCESS = EventKind(
    name="process", concerns="process", summary="a process such as node3/probe",
    states=(
        EventState("dead", "{who} is dead or stalled; its paths are not blamed"),
        EventState("alive", "{who} is alive again", is_relief=True),
    ),
)  # fmt: skip
CLOCK = EventKind(
    name="clock", concerns="clock", summary="a clock",
    states=(
        EventState("disrupted", "the clock {who} cannot be trusted"),
        EventState("synchronised", "the clock {who} can be trusted again", is_relief=True),
    ),
)  # fmt: skip
REFUSAL = EventKind(
    name="refusal", concerns="anything", publisher="remediator", words=_refusal_words,
    summary="what was not moved, as a doubt, a guard or a budget forbade a command",
    states=(EventState("refused", "nothing is moved for {who}"),),
)  # fmt: skip

CONTENTION = EventKind(
    name="contention", concerns="anything", words=_contention_words,
    summary="a place at which flows get less than they could: a link between routers, by the address of the port that "
    "it enters, a NIC, or a flow. `related` has the links that may be the place, the flows and the jobs",
    states=(
        EventState("fabric-contention", "flows share the link {who} while others have room"),
        EventState("own-nic", "flows that leave {who} want more than it carries"),
        EventState("incast", "flows that arrive at {who} want more than it carries"),
        EventState("slow-receiver", "the receiver of {who} does not read as quickly as the network brings"),
        EventState("reduced-rate", "{who} carries less than it did"),
        EventState("clear", "nothing is short at {who} any more", is_relief=True),
    ),
)  # fmt: skip
THRESHOLD = EventKind(
    name="threshold", concerns="anything", words=_threshold_words,
    summary="a threshold of the user's own on the one-way delay of a path, a pair of nodes, a rail or a job; `who` is "
    "the threshold's name",
    states=(
        EventState("over", "the one-way delay is over the threshold {who}"),
        EventState("under", "the one-way delay is under the threshold {who} again", is_relief=True),
    ),
)  # fmt: skip
MISMATCH = EventKind(
    name="mismatch", concerns="anything", words=_mismatch_words,
    summary="a flow whose round trips are quicker than probes of the path that its traffic is said to take, so that it "
    "takes another. `related` has the flow, that path and the one of its acknowledgements, and the job",
    states=(
        EventState("elsewhere", "the traffic of {who} does not take the path that is probed for it"),
        EventState("agrees", "nothing contradicts the path of {who} any more", is_relief=True),
    ),
)  # fmt: skip

HANG = EventKind(
    name="hang", concerns="rank", words=_hang_words,
    summary="a rank of a training job, such as pretrain-7/rank3, that holds up all others, or a job that stands though "
    "no rank does. `related` has the job and the rank's node",
    states=(
        EventState("absent", "{who} has not begun what others wait in"),
        EventState("mismatch", "{who} began another collective than the others"),
        EventState("stopped", "the process of {who} is stopped, and others wait for it"),
        EventState("dead", "{who} is gone, and others wait for it"),
        EventState("silent", "{who} says nothing any more, and others wait for it"),
        EventState("stuck", "the ranks of {who} wait in a collective that all of them have begun"),
        EventState("broken", "the group of {who} broke, and none of its ranks is lost"),
        EventState("replaced", "another process has the place of {who}", is_relief=True),
        EventState("moving", "the job goes on that waited for {who}", is_relief=True),
        EventState("over", "the job is over that waited for {who}", is_relief=True),
    ),
)  # fmt: skip
STRAGGLER = EventKind(
    name="straggler", concerns="rank", words=_straggler_words,
    summary="a rank of a training job, such as pretrain-7/rank3, for which the others wait in each step. The state is "
    "the cause. `related` has the job and the rank's node",
    states=(
        EventState("compute", "{who} computes longer than the others, which wait for it"),
        EventState("data", "{who} waits longer for its data than the others, which wait for it"),
        EventState("processor", "{who} waits longer for a processor than the others, which wait for it"),
        EventState("network", "the collectives of {who} take longer, as its flows get less than they could"),
        EventState("halted", "the process of {who} is stopped again and again, and the others wait for it"),
        EventState("in-step", "nobody waits for {who} any more", is_relief=True),
        EventState("over", "the job of {who} is over", is_relief=True),
        EventState("unknown", "it is not known any more whether others wait for {who}", is_relief=True),
    ),
)  # fmt: skip
HARDWARE = EventKind(
    name="hardware", concerns="anything", words=_hardware_words,
    summary="a node whose GPU has an error after which nothing should run on it. The state says how soon. `related` has "
    "the node",
    states=(
        EventState("failed", "a GPU of {who} has failed"),
        EventState("degraded", "a GPU of {who} is to be reset before long"),
        EventState("restarted", "{who} has started anew, or its GPUs had no such error for an hour", is_relief=True),
    ),
)  # fmt: skip

BUILT_IN = (FLAP, PATH, NIC, PROCESS, CLOCK, REFUSAL, CONTENTION, THRESHOLD, MISMATCH, HANG, STRAGGLER, HARDWARE)
for _kind in BUILT_IN:
    register(_kind)
