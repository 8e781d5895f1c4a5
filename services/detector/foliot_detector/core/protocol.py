"""The interface of a detector: observations in, events out."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from foliot_detector.core.state.path_table import Delays
from foliot_detector.core.state.training_jobs import Collectives
from foliot_detector.core.state.workers import WorkerJob
from foliot_schemas import (
    ClockState,
    CollectiveBatch,
    DelayBatch,
    Event,
    FlowBatch,
    GpuError,
    HopBatch,
    Job,
    Node,
    NodePaths,
    PortState,
    WorkerBatch,
)

Observation: TypeAlias = (
    PortState | DelayBatch | FlowBatch | HopBatch | CollectiveBatch | WorkerBatch | GpuError | ClockState | Node
    | NodePaths | Job
)  # fmt: skip


Seen: TypeAlias = (
    PortState | Delays | FlowBatch | HopBatch | Collectives | WorkerJob | GpuError | ClockState | Node | NodePaths | Job
)
"""An observation as detectors see it: a batch is unpacked once, for all of them."""


class Detector(Protocol):
    """One kind of trouble. The same observations and ticks in give the same events out."""

    def resume(self, event: Event) -> None:
        """Takes the last event of an earlier run about something, to end what it began. Other events change nothing."""

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes an observation at a time of the timeline; what does not concern it changes nothing."""

    def tick(self, now_ns: int) -> list[Event]:
        """Takes the passing of time."""
