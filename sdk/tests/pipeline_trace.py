"""The operations of a training job in a pipeline, with known costs: the trace that a profiler would write."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")
WIRE_S, EXCHANGE_S, UPDATE_S = 0.002, 0.05, 0.02


@dataclass
class Pipeline:
    """Replicas of a pipeline that run one forward, one backward (1F1B), exchange gradients and update the model.

    A computation takes `forward_s` or `backward_s` times a worker's factor, more or less by `noise`.
    """

    replicas: int = 4
    stages: int = 4
    batches: int = 8
    steps: int = 5
    forward_s: float = 0.1
    backward_s: float = 0.2
    slow: dict[tuple[int, int], float] = field(default_factory=dict)
    """Factors by replica and stage."""
    noise: float = 0.0
    seed: int = 0

    def rows(self):
        """The trace's rows, and the mean step in seconds."""
        rng = random.Random(self.seed)
        rows, lengths = [], []
        for step in range(self.steps):
            ends = []
            step_rows = []
            for replica in range(self.replicas):
                made, end_s = self._passes(replica, rng)
                step_rows += [(replica, *each) for each in made]
                ends += [(replica, stage, at) for stage, at in enumerate(end_s)]
            last = max(at for _, _, at in ends)
            last_of = {stage: max(at for _, other, at in ends if other == stage) for stage in range(self.stages)}
            for replica, stage, at in ends:
                # Gradients are exchanged once all replicas of a stage have theirs, and clipped once all stages have.
                through = max(last_of[stage], at) + EXCHANGE_S
                step_rows += [
                    (replica, stage, "gc", at, 0.0, 0),
                    (replica, stage, "layernorm-grads-all-reduce", at, 0.0, 0),
                    (replica, stage, "grads-reduce-scatter", at, through - at, 0),
                    (replica, stage, "optimizer-clip-main-grad", through, last + EXCHANGE_S - through, 0),
                    (replica, stage, "optimizer", last + EXCHANGE_S, UPDATE_S, 0),
                ]
                if stage in {0, self.stages - 1}:
                    step_rows.append((replica, stage, "embedding-grads-all-reduce", at, 0.0, 0))
            lengths.append(last + EXCHANGE_S + UPDATE_S)
            for replica, stage, kind, start_s, duration_s, number in step_rows:
                compute = kind.endswith("-compute")
                chunk = 0 if compute or kind == "grads-reduce-scatter" else -1
                rows.append(
                    (
                        replica, stage, stage * self.replicas + replica, step, kind, start_s, duration_s, number,
                        chunk, number if compute else -1, stage if compute else -1,
                    )
                )  # fmt: skip
        return rows, sum(lengths) / len(lengths)

    def _passes(self, replica, rng):
        """The computations and transfers of one replica, and when each stage is through."""
        free = [0.0] * self.stages
        begun = [[] for _ in range(self.stages)]
        """What each stage did last, in order: kind and number."""
        for stage in range(self.stages):
            warm = min(self.stages - stage - 1, self.batches)
            order = [("forward", n) for n in range(warm)]
            for n in range(self.batches - warm):
                order += [("forward", warm + n), ("backward", n)]
            order += [("backward", n) for n in range(self.batches - warm, self.batches)]
            begun[stage] = order
        done, rows = {}, []
        while any(begun):
            for stage in range(self.stages):
                if not begun[stage]:
                    continue
                kind, number = begun[stage][0]
                source = stage + (-1 if kind == "forward" else 1)
                comes = 0 <= source < self.stages
                if comes and (kind, number, source) not in done:
                    continue
                begun[stage].pop(0)
                sent_s = done[kind, number, source] if comes else 0.0
                ready_s = max(free[stage], sent_s + WIRE_S if comes else 0.0)
                taken_s = (self.forward_s if kind == "forward" else self.backward_s) * self.slow.get(
                    (replica, stage), 1.0
                )
                taken_s *= 1 + self.noise * rng.uniform(-1, 1)
                if comes:
                    # Both ends are there when the sender has what it sends.
                    waits_from = min(free[stage], sent_s)
                    rows.append((stage, f"{kind}-recv", waits_from, sent_s + WIRE_S - waits_from, number))
                    rows.append((source, f"{kind}-send", sent_s, WIRE_S, number))
                rows.append((stage, f"{kind}-compute", ready_s, taken_s, number))
                free[stage] = done[kind, number, stage] = ready_s + taken_s
        return rows, free
