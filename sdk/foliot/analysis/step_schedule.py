"""Which operation of a training step waits for which, by the order in which a trace shows them.

A step runs forward and backward through a pipeline, exchanges gradients between replicas, and updates the model. The
dependencies are those of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI '25, section
3), found in one replica's first step: all do the same in each.
"""

from __future__ import annotations

import graphlib
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from foliot.analysis.operator_trace import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foliot.analysis.operator_trace import StepOperation

_EPS_S = 5e-5
"""By how much a transfer may seem to begin after the computation that waits for it: stamps of two streams."""
_DIRECTIONS = {"forward": 1, "backward": -1}
"""To which stage a direction sends, from its own."""
TRANSFERS = tuple(f"{direction}-{side}" for direction in _DIRECTIONS for side in ("send", "recv"))
"""Between neighbouring stages."""
_GATHER, _SCATTER, _SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
EXCHANGES = (_GATHER, _SCATTER, _SEPARATE)
"""Between replicas."""
_LAYERNORM, _EMBEDDING, _CLIP = "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad"
COMMUNICATION = (*TRANSFERS, *EXCHANGES, _LAYERNORM, _EMBEDDING, _CLIP)
"""What takes as long as a network makes it; all other kinds compute."""
_KINDS = frozenset({*COMMUNICATION, "forward-compute", "backward-compute", "gc", "optimizer"})


class Unit(NamedTuple):
    """An operation, or several of which none moves on before all have begun."""

    operations: tuple[int, ...]
    of_replicas: bool
    """Whether those of all replicas have to begin."""
    communicates: bool
    """Whether its time counts from when the last has begun."""


class Schedule(NamedTuple):
    """The dependencies of a step's operations, which are given by their places in the trace."""

    after: tuple[tuple[int, ...], ...]
    """By operation: those that have to end before it begins."""
    units: tuple[Unit, ...]
    """Each operation once, each unit after all that its operations wait for."""


def schedule(operations: Sequence[StepOperation]) -> Schedule:
    """Finds the dependencies of a step.

    Raises:
        TraceError: the operations are not those of a step in a pipeline.
    """
    if strangers := sorted({each.kind for each in operations} - _KINDS):
        raise TraceError(f"{strangers[0]} is no operation of a step")
    return _Builder(operations).built()


class _Builder:
    """Collects dependencies."""

    def __init__(self, operations: Sequence[StepOperation]) -> None:
        self._operations = operations
        self._after: list[set[int]] = [set() for _ in operations]
        self._groups: list[tuple[int, ...]] = []
        self._overlaps = any(each.kind == _SEPARATE for each in operations)
        """Whether gradients are exchanged while others are still computed."""
        self._last_stage = max(each.stage for each in operations)
        self._chunks = (1 + max((each.chunk for each in operations), default=0)) * (self._last_stage + 1)
        self._by_kind: dict[tuple[str, int], list[int]] = defaultdict(list)
        """By kind and stage, in the order of their numbers."""
        for place in sorted(range(len(operations)), key=lambda each: operations[each].number):
            self._by_kind[operations[place].kind, operations[place].stage].append(place)

    def built(self) -> Schedule:
        """All of it."""
        paired: dict[tuple[str, str, int], list[int]] = {}
        for stage in range(self._last_stage + 1):
            computations = self._begun([*self._of("forward-compute", stage), *self._of("backward-compute", stage)])
            if not computations:
                raise TraceError(f"stage {stage} computes nothing")
            self._chain(computations)
            for direction in _DIRECTIONS:
                for side in ("send", "recv"):
                    paired[direction, side, stage] = self._transfers(direction, side, stage)
            self._begin_backward(computations, stage)
            self._exchange(stage)
            self._update(computations, stage)
        self._pair(paired)
        self._join_stages()
        return Schedule(tuple(tuple(sorted(each)) for each in self._after), self._units())

    def _of(self, kind: str, stage: int) -> list[int]:
        return self._by_kind.get((kind, stage), [])

    def _begun(self, places: Iterable[int]) -> list[int]:
        """In the order in which they began."""
        rows = self._operations
        return sorted(places, key=lambda each: (rows[each].start_s, rows[each].number, rows[each].kind))

    def _chain(self, places: Sequence[int]) -> None:
        for before, after in itertools.pairwise(places):
            self._after[after].add(before)

    def _transfers(self, direction: str, side: str, stage: int) -> list[int]:
        """Joins a stage's transfers of a kind with its computations. Returns those that have a partner, in order.

        A profiler may record transfers that were not begun: before the first computation, after the last, and at the
        ends of the model.
        """
        transfers = self._begun(self._of(f"{direction}-{side}", stage))
        self._chain(transfers)
        computations, rows = self._of(f"{direction}-compute", stage), self._operations
        if not computations:
            self._groups += [(each,) for each in transfers]
            return []
        if side == "recv":
            latest_s = max(rows[each].start_s for each in computations) + _EPS_S
            real = [each for each in transfers if rows[each].start_s <= latest_s]
        else:
            earliest_s = min(rows[each].end_s for each in computations) - _EPS_S
            real = [each for each in transfers if rows[each].end_s >= earliest_s]
        lacking = len(computations) - len(real) if real else 0
        if lacking not in {0, 1}:
            raise TraceError(
                f"stage {stage} has {len(real)} of {direction}-{side} for {len(computations)} of {direction}-compute"
            )
        # The first stage receives nothing for its first part of the model, and may record nothing.
        skipped = lacking if side == "recv" else 0
        towards = _DIRECTIONS[direction] * (1 if side == "send" else -1)
        partnered = {}
        for number, transfer in enumerate(real, skipped):
            computation = computations[number]
            if side == "send":
                self._after[transfer].add(computation)
            else:
                self._after[computation].add(transfer)
                self._after[transfer].update(computations[number - 1 : number] if number else ())
            partnered[transfer] = 0 <= rows[computation].model_chunk + towards < self._chunks
        self._groups += [(each,) for each in transfers if not partnered.get(each)]
        return [each for each in real if partnered[each]]

    def _pair(self, paired: dict[tuple[str, str, int], list[int]]) -> None:
        """Each transfer that is sent is received by the next stage, or by the first one again."""
        stages = self._last_stage + 1
        for direction, towards in _DIRECTIONS.items():
            for stage in range(stages):
                sent = paired[direction, "send", stage]
                received = paired[direction, "recv", (stage + towards) % stages]
                if len(sent) != len(received):
                    raise TraceError(
                        f"stage {stage} sends {len(sent)} times {direction}, of which {len(received)} arrive"
                    )
                self._groups += list(zip(sent, received, strict=True))

    def _begin_backward(self, computations: Sequence[int], stage: int) -> None:
        """The first backward transfers begin once the forward computation before the last one has ended."""
        kinds = [self._operations[each].kind for each in computations]
        first = kinds.index("backward-compute") if "backward-compute" in kinds else 0
        if first >= 2:
            for kind in ("backward-recv", "backward-send"):
                for each in self._of(kind, stage)[:1]:
                    self._after[each].add(computations[first - 2])

    def _exchange(self, stage: int) -> None:
        """Parameters come before the first computation with them. Gradients leave after the last, where they may."""
        rows = self._operations
        gathers, scatters = self._of(_GATHER, stage), self._of(_SCATTER, stage)
        self._chain(self._begun([*gathers, *scatters]))
        self._groups += [(each,) for kind in EXCHANGES for each in self._of(kind, stage)]
        for gather in {rows[each].chunk: each for each in gathers}.values():
            if own := self._with("forward-compute", stage, rows[gather].chunk):
                self._after[min(own, key=lambda each: rows[each].start_s)].add(gather)
        if self._overlaps:
            for scatter in {rows[each].chunk: each for each in reversed(scatters)}.values():
                if own := self._with("backward-compute", stage, rows[scatter].chunk):
                    self._after[scatter].add(max(own, key=lambda each: rows[each].end_s))

    def _with(self, kind: str, stage: int, chunk: int) -> list[int]:
        """Those of a kind that are about a part of the model."""
        return [each for each in self._of(kind, stage) if self._operations[each].chunk == chunk]

    def _update(self, computations: Sequence[int], stage: int) -> None:
        """What follows the last computation, one after the other, down to the optimizer."""
        last = max(computations, key=lambda each: self._operations[each].end_s)
        collected, scatters = self._of("gc", stage), self._of(_SCATTER, stage)
        for each in collected:
            self._after[each].add(last)
        before = {*(collected or [last]), *(scatters[-1:] if self._overlaps else [])}
        embedding = self._of(_EMBEDDING, stage) if stage in {0, self._last_stage} else []
        between = self._of(_SEPARATE, stage) if self._overlaps else scatters
        for each in [
            *self._of(_LAYERNORM, stage), *embedding, *between, *self._of(_CLIP, stage), *self._of("optimizer", stage),
        ]:  # fmt: skip
            self._after[each] |= before
            before = {each}

    def _join_stages(self) -> None:
        """The ends of the pipeline share an embedding; all stages clip gradients together."""
        ends = sorted({0, self._last_stage})
        for number in range(max(len(self._of(_EMBEDDING, stage)) for stage in ends)):
            self._groups.append(
                tuple(each for stage in ends for each in self._of(_EMBEDDING, stage)[number : number + 1])
            )
        stages = range(self._last_stage + 1)
        for number in range(max(len(self._of(_CLIP, stage)) for stage in stages)):
            self._groups.append(tuple(each for stage in stages for each in self._of(_CLIP, stage)[number : number + 1]))

    def _units(self) -> tuple[Unit, ...]:
        """In an order in which each comes after what it waits for."""
        grouped = {each for group in self._groups for each in group}
        groups = [*self._groups, *((each,) for each in range(len(self._operations)) if each not in grouped)]
        of_operation = {each: number for number, group in enumerate(groups) for each in group}
        before = {
            number: {of_operation[other] for each in group for other in self._after[each]} - {number}
            for number, group in enumerate(groups)
        }
        try:
            order = [*graphlib.TopologicalSorter(before).static_order()]
        except graphlib.CycleError:
            raise TraceError("its operations wait for each other in a circle") from None
        of_replicas = {*EXCHANGES, _CLIP}
        return tuple(
            Unit(
                groups[number],
                self._operations[groups[number][0]].kind in of_replicas,
                number < len(self._groups),
            )
            for number in order
        )
