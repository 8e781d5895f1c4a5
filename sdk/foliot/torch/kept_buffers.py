"""The buffers of modules as they were when a step began: a step that is done again must not change them twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable


_SMALL = 1 << 18
"""Elements of a buffer that is copied after each step. A larger one is if PyTorch counts that it was written to: PyTorch
does not count what its own normalisation over batches writes."""


class KeptBuffers:
    """Copies of the buffers of some modules, such as the means that normalisation over batches keeps.

    Parameters of a module need none: nothing changes them before all collectives of a step are through.
    """

    def __init__(self, parts: Iterable[object]) -> None:
        self._modules = [part for part in parts if isinstance(part, torch.nn.Module)]
        self._buffers: list[torch.Tensor] = []
        self._copies: list[torch.Tensor] = []
        self._versions: list[int] = []
        """How often each had been written to when it was copied, as PyTorch counts it."""

    def begin(self) -> None:
        """Copies all buffers that there are now: a group's first step begins."""
        self._buffers = [buffer for module in self._modules for buffer in module.buffers()]
        self._copies = [buffer.detach().clone() for buffer in self._buffers]
        self._versions = [_version(buffer) for buffer in self._buffers]

    def keep(self) -> None:
        """Copies what may have been written to since the last time."""
        versions = [_version(buffer) for buffer in self._buffers]
        written = [
            (copy, buffer)
            for copy, buffer, version, before in zip(self._copies, self._buffers, versions, self._versions, strict=True)
            if version != before or buffer.numel() <= _SMALL
        ]
        self._versions = versions
        if written:
            with torch.no_grad():
                torch._foreach_copy_(*map(list, zip(*written, strict=True)))

    def put_back(self) -> None:
        """Makes the buffers what they were."""
        with torch.no_grad():
            for buffer, kept in zip(self._buffers, self._copies, strict=True):
                buffer.copy_(kept)


def _version(buffer: torch.Tensor) -> int:
    version: int = buffer._version  # noqa: SLF001 - autograd's own count, which has no public name
    return version
