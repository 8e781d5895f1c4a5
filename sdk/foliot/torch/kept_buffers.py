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
        self._places: list[_Place] = []

    def begin(self) -> None:
        """Copies all buffers that there are now: a group's first step begins."""
        self._places = [
            _Place(owner, name, buffer)
            for module in self._modules
            for owner in module.modules()
            for name, buffer in owner._buffers.items()  # noqa: SLF001 - `buffers` does not say whose they are
            if buffer is not None
        ]

    def keep(self) -> None:
        """Copies what may have been written to since the last time."""
        written = [place for place in self._places if place.is_to_be_copied()]
        if written:
            with torch.no_grad():
                torch._foreach_copy_([place.copy for place in written], [place.buffer for place in written])

    def put_back(self) -> None:
        """Makes the buffers what they were."""
        with torch.no_grad():
            for place in self._places:
                place.put_back()


class _Place:
    """A module's buffer, by its name, and its copy. A program may write to it, or put another in its place."""

    __slots__ = ("buffer", "copy", "name", "owner", "version")

    def __init__(self, owner: torch.nn.Module, name: str, buffer: torch.Tensor) -> None:
        self.owner = owner
        self.name = name
        self._take(buffer)

    def _take(self, buffer: torch.Tensor) -> None:
        self.buffer, self.copy, self.version = buffer, buffer.detach().clone(), _version(buffer)

    def is_to_be_copied(self) -> bool:
        """Whether it may have been written to. If it is another one by now, that is copied here."""
        now = self.owner._buffers.get(self.name)  # noqa: SLF001 - as above
        if now is not self.buffer:
            if now is not None:
                self._take(now)
            return False
        before, self.version = self.version, _version(now)
        return before != self.version or now.numel() <= _SMALL

    def put_back(self) -> None:
        """Makes it what it was."""
        if self.owner._buffers.get(self.name) is self.buffer:  # noqa: SLF001 - as above
            self.buffer.copy_(self.copy)
        else:
            self.owner._buffers[self.name] = self.copy.clone()  # noqa: SLF001 - as above


def _version(buffer: torch.Tensor) -> int:
    version: int = buffer._version  # noqa: SLF001 - autograd's own count, which has no public name
    return version
