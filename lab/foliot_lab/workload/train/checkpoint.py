"""The state of a job in a file, from which the job goes on when it is started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "checkpoint.pt"


class Checkpoint:
    """A job's newest checkpoint, in a folder that all ranks see.

    Parameters:
        folder: None: the job saves nothing, and begins at its first step.
        each: it is saved each so many steps.
    """

    def __init__(self, folder: Path | None, each: int) -> None:
        self._folder = folder
        self._each = each

    def load(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Gives model and optimizer the saved state; returns how many steps were done. 0: nothing was saved."""
        if self._folder is None or not (self._folder / _NAME).exists():
            return 0
        saved = torch.load(self._folder / _NAME, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        return int(saved["step"])

    def save(self, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Saves the state after so many steps, if it is their turn. One rank does so, since all have the same state.

        Whoever reads it meanwhile finds the one before.
        """
        if self._folder is None or step % self._each:
            return
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, self._folder / f"{_NAME}.new")
        (self._folder / f"{_NAME}.new").rename(self._folder / _NAME)
