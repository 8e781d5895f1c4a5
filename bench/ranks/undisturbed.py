"""The losses of the job where no rank is ever lost: on this machine's loopback addresses, without a lab."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from foliot_lab.services.forker import Forker
from foliot_lab.services.ports import keep
from foliot_lab.workload.train.merged_steps import merge, read_lines
from foliot_lab.workload.train.ranks import IMPORTED
from foliot_lab.workload.workload import JOB

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_NICENESS = 19
"""By default it takes the processors that nothing else wants."""


def losses(
    folder: Path, *, ranks: int, gradient_mb: float, seed: int, steps: int, niceness: int = _NICENESS,
    within_s: float | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """The mean loss over the ranks of each step. Call it where no event loop runs.

    Raises:
        RuntimeError: a rank did not do all its steps; the reason is in its log.
        TimeoutError: it takes longer than is permitted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"rank{rank}.jsonl" for rank in range(ranks)]
    words = ["--gradient-bytes", str(round(gradient_mb * 1e6)), "--steps", str(steps), "--seed", str(seed)]
    if any(asyncio.run(_ends(files, words, niceness, within_s))):
        raise RuntimeError(f"a rank did not do its steps; see {folder}")
    return merge({file.stem: read_lines(file, 0) for file in files}, ranks).losses


async def _ends(files: Sequence[Path], words: Sequence[str], niceness: int, within_s: float | None) -> list[int]:
    """Runs a rank for each record; their exit statuses. One process imports PyTorch for all of them."""
    forker = Forker(IMPORTED, os.environ)
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        with keep() as keeper:
            port = keeper.getsockname()[1]
            processes = []
            for rank, file in enumerate(files):
                environment = {
                    "RANK": str(rank), "WORLD_SIZE": str(len(files)), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                }  # fmt: skip
                with file.with_suffix(".log").open("wb") as said:
                    processes.append(
                        forker.start(
                            JOB, "--address", f"127.0.1.{1 + rank}", "--record", str(file), *words, namespace=namespace,
                            stdout=said.fileno(), stderr=said.fileno(), env=os.environ | environment, niceness=niceness,
                        )
                    )  # fmt: skip
            async with asyncio.timeout(within_s):
                return [await process.wait() for process in processes]
    finally:
        os.close(namespace)
        forker.close()
