"""A rank of the lab's training job that tells Foliot of its collectives for some steps, and does not for as many others.

`bench.record_cost` starts it, with the environment that torchrun gives. All ranks change over at the same steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.record_cost import is_recorded
from foliot.torch import interception
from foliot.torch.collective_log import CollectiveLog
from foliot.torch.reporter import Reporter
from foliot_lab.workload.train.group import join, work
from foliot_lab.workload.train.job import OneGroup, Training, parser_of_job

if TYPE_CHECKING:
    import argparse


class Alternating(OneGroup):
    """A job's only group, in which the record is turned on and off between steps.

    Parameters:
        arguments: of the command line.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(0)
        self._arguments = arguments
        self._reporter: Reporter | None = None

    def end_step(self) -> None:
        """Says that a step is done."""
        super().end_step()
        wanted = is_recorded(self.step, self._arguments.block)
        if wanted and self._reporter is None:
            log = CollectiveLog()
            log.generation = self.step  # so that the agent takes it for the rank's next
            self._reporter = Reporter(log, self._arguments.job_told, self._arguments.rank_socket)
            interception.intercept(log)
            self._reporter.start()
        elif not wanted and self._reporter is not None:
            interception.stop()
            self._reporter.end()
            self._reporter = None


def main() -> None:
    """Parses the command line, joins, trains."""
    parser = parser_of_job()
    parser.add_argument("--block", type=int, required=True, help="steps until the record is turned on or off")
    parser.add_argument("--job-told", required=True, help="the name of the job by which it tells of itself")
    arguments = parser.parse_args()
    join(arguments.address, arguments.timeout_s)
    with arguments.record.open("w", buffering=1) as record:
        work(lambda: Training(arguments, record).train(Alternating(arguments)))


if __name__ == "__main__":
    main()
