"""The losses of the job where no rank is ever lost: on this machine's loopback addresses, without a lab."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from foliot_lab.services.ports import keep
from foliot_lab.workload.train.merged_steps import merge, read_lines
from foliot_lab.workload.workload import JOB

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_NICENESS = 19
"""By default it takes the processors that nothing else wants."""


def losses(
    folder: Path, *, ranks: int, gradient_mb: float, seed: int, steps: int, niceness: int = _NICENESS,
    within_s: float | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """The mean loss over the ranks of each step.

    Raises:
        RuntimeError: a rank did not do all its steps; the reason is in its log.
        subprocess.TimeoutExpired: it takes longer than is permitted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with keep() as keeper:
        port = keeper.getsockname()[1]
        files = [folder / f"rank{rank}.jsonl" for rank in range(ranks)]
        processes = []
        for rank, file in enumerate(files):
            environment = {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            words = [
                "--address", f"127.0.1.{1 + rank}", "--record", str(file), "--gradient-bytes", str(round(gradient_mb * 1e6)),
                "--steps", str(steps), "--seed", str(seed),
            ]  # fmt: skip
            with file.with_suffix(".log").open("wb") as said:
                processes.append(
                    subprocess.Popen(
                        ["nice", "-n", str(niceness), sys.executable, "-m", JOB, *words], env=os.environ | environment,
                        stdout=said, stderr=subprocess.STDOUT,
                    )
                )  # fmt: skip
        try:
            ends = [process.wait(within_s) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    if any(ends):
        raise RuntimeError(f"a rank did not do its steps; see {folder}")
    return merge({file.stem: read_lines(file, 0) for file in files}, ranks).losses
