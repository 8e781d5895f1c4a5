"""Faults inside of a rank's program: it looks into a file before each step, and does what that says.

| words | what the rank does |
|---|---|
| `hang` | it does not begin the step, for as long as the file says so |
| `mismatch` | it begins another collective than the others |
| `data-slow 40` | it waits 40 ms longer for its data |
| `compute-slow 40` | it computes for 40 ms longer, as a slower processor would |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch.distributed as dist

if TYPE_CHECKING:
    from pathlib import Path

_POLL_S = 0.02


class Lever:
    """What a rank's program is to do otherwise.

    Parameters:
        path: of the file; None: there is none.
    """

    def __init__(self, path: Path | None) -> None:
        self.data_wait_s = 0.0
        """For how much longer the data of this step take."""
        self.compute_s = 0.0
        """For how much longer this step is computed."""
        self._path = path

    def before_step(self) -> None:
        """Does what the file says now."""
        self.data_wait_s = self.compute_s = 0.0
        while self._path is not None:
            try:
                words = self._path.read_text().split()
            except FileNotFoundError:
                return
            match words:
                case ["data-slow", ms]:
                    self.data_wait_s = float(ms) * 1e-3
                    return
                case ["compute-slow", ms]:
                    self.compute_s = float(ms) * 1e-3
                    return
                case ["mismatch"]:
                    dist.barrier()
                case ["hang"]:
                    time.sleep(_POLL_S)
                case _:  # the lab writes it just now
                    return

    def compute(self) -> None:
        """Computes for as long as this step is to take longer."""
        until_s = time.perf_counter() + self.compute_s
        while time.perf_counter() < until_s:
            pass
