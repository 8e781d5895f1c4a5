"""The steps of one job: how much its flows may send, and when all have delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.workload.flow_record import FlowRecord

GREETING_BYTES = 1
"""What a flow sends before its job first runs, so that its connection is up by then."""


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a job's flows send."""

    step_bytes: int = 0
    """A step sends so much over each flow; 0: there are no steps."""
    read_bytes_per_s: int = 0
    """How fast the receiver reads each flow; 0: as it comes."""


class Stepped(Protocol):
    """A flow, by what it has sent and delivered since it exists; `flow_loop.Flow` is one."""

    sent: int
    delivered: int
    may_send: int | None
    """How much it may have sent at most; None: there is no limit."""


class JobSteps:
    """Lets the flows of a job send while the job is wanted. A step is over when the slowest flow has delivered.

    Parameters:
        number: of the job in the record.
        flows: all of its flows.
    """

    def __init__(self, number: int, plan: JobPlan, flows: Sequence[Stepped], record: FlowRecord) -> None:
        self._number = number
        self._step_bytes = plan.step_bytes
        self._flows = flows
        self._record = record
        self._runs = False
        self._began_ns = 0
        for flow in flows:
            flow.may_send = GREETING_BYTES

    def turn(self, now_ns: int) -> None:
        """Ends a step that all flows have delivered and begins the next; begins and stops with the lab's wish."""
        wanted = self._record.is_wanted(self._number)
        if wanted and not self._runs:
            self._begin_step(now_ns)
        elif self._runs and not wanted:
            for flow in self._flows:
                flow.may_send = flow.sent
        elif self._runs and self._step_bytes and not any(map(is_due, self._flows)):
            self._record.step(self._number, self._began_ns, now_ns)
            self._begin_step(now_ns)
        self._runs = wanted

    def _begin_step(self, now_ns: int) -> None:
        self._began_ns = now_ns
        for flow in self._flows:
            flow.may_send = flow.sent + self._step_bytes if self._step_bytes else None


def is_due(flow: Stepped) -> bool:
    """Whether bytes of a flow have still to be delivered."""
    return flow.may_send is None or flow.delivered < flow.may_send
