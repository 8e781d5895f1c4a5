"""Whether the state is being changed: what is neither that of one step nor that of the next is nobody's to go on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Changes:
    """Takes that an optimizer's step begins, and that all changes of a step of the job have been made.

    If a rank is lost in between, while the others wait in a collective, their state is not whole: to do the step again
    would change parameters twice.

    Parameters:
        parts: of the state. PyTorch's optimizers among them tell when they begin a step; of others, nothing is known.
        check: called before; what it raises keeps the optimizer from its step.
    """

    def __init__(self, parts: Iterable[object], check: Callable[[], None]) -> None:
        self._check = check
        self.is_under_way = False
        """Whether an optimizer has begun a step since `end`."""
        for part in parts:
            if isinstance(part, torch.optim.Optimizer):
                part.register_step_pre_hook(self._begin)

    def end(self) -> None:
        """Takes that the state is whole: that of a step, and nothing of the next."""
        self.is_under_way = False

    def _begin(self, *_: Any) -> None:
        self._check()
        self.is_under_way = True
