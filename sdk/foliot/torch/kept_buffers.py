"""The buffers of modules as they were when a step began: a step that is done again must not change them twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class KeptBuffers:
    """Copies of the buffers of some modules, such as the means that normalisation over batches keeps.

    Parameters of a module need none: nothing changes them before all collectives of a step are through.
    """

    def __init__(self, parts: Iterable[object]) -> None:
        self._modules = [part for part in parts if isinstance(part, torch.nn.Module)]
        self._kept: dict[str, tuple[int, torch.Tensor]] = {}
        """By name: how often the buffer had been written to, as PyTorch counts it, and its copy."""

    def keep(self) -> None:
        """Copies what was written to since the last time."""
        for name, buffer in self._buffers():
            version, _ = self._kept.get(name, (-1, buffer))
            if buffer._version != version:  # noqa: SLF001 - autograd's own count, which has no public name
                self._kept[name] = buffer._version, buffer.detach().clone()  # noqa: SLF001

    def put_back(self) -> None:
        """Makes the buffers what they were."""
        with torch.no_grad():
            for name, buffer in self._buffers():
                if name in self._kept:
                    buffer.copy_(self._kept[name][1])

    def _buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        for number, module in enumerate(self._modules):
            for name, buffer in module.named_buffers():
                yield f"{number}/{name}", buffer
