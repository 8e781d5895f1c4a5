"""The state of a job from a rank that has it to one that lacks it: tensors as they are, the rest pickled.

The bytes of all tensors go as one stream, in pieces. So a state of few large tensors and one of many small ones take the
same time, and the sender needs room for some pieces alone.
"""

from __future__ import annotations

import collections
import copy
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PIECE = 1 << 20
"""Bytes of a piece."""
_TAGS = 64
"""Pieces in turn have different tags: Gloo chooses the device that sends by the tag."""
_UNDER_WAY = 8
"""Pieces that are on their way to a rank at a time."""


class Stateful(Protocol):
    """What has a state: a module, an optimizer, a schedule of rates, a loader of data."""

    def state_dict(self) -> Any:
        """Its state."""

    def load_state_dict(self, state: Any) -> Any:
        """Takes a state."""


class _Slot(NamedTuple):
    """A tensor's place in a state out of which the tensors were taken."""

    number: int
    type: torch.dtype
    shape: tuple[int, ...]


def send(state: Mapping[str, Stateful], ranks: Sequence[int], device: torch.device) -> int:
    """Sends the state to ranks of the default group; returns its bytes.

    Parameters:
        device: the type of device whose tensors the group's backend sends.

    Raises:
        RuntimeError: the group is broken, or a tensor has no plain memory, as a sparse one.
    """
    tensors: list[torch.Tensor] = []
    skeleton = _taken_out({name: each.state_dict() for name, each in state.items()}, tensors)
    packed = torch.frombuffer(bytearray(pickle.dumps(skeleton)), dtype=torch.uint8)
    length = torch.tensor([packed.numel()], device=device)
    for rank in ranks:
        dist.send(length, rank)
    return sum(_send(buffers, ranks, device) for buffers in ([packed], [_bytes(each) for each in tensors]))


def receive(state: Mapping[str, Stateful], rank: int, device: torch.device) -> int:
    """Takes the state that a rank of the default group sends; returns its bytes.

    Raises:
        KeyError: the sender has a part of the state that is not there.
        RuntimeError: the group is broken.
    """
    length = torch.zeros(1, dtype=torch.int64, device=device)
    dist.recv(length, rank)
    packed = torch.empty(int(length.item()), dtype=torch.uint8)
    count = _receive([packed], rank, device)
    # Of a rank of this job, as objects are that PyTorch itself sends.
    skeleton = pickle.loads(packed.numpy().tobytes())  # noqa: S301
    tensors = [torch.empty(slot.shape, dtype=slot.type) for slot in sorted(_slots(skeleton))]
    count += _receive([_bytes(each) for each in tensors], rank, device)
    for name, part in _put_in(skeleton, tensors).items():
        state[name].load_state_dict(part)
    return count


def _send(buffers: Sequence[torch.Tensor], ranks: Sequence[int], device: torch.device) -> int:
    """Sends the bytes of some buffers, one after the other; returns how many they are."""
    waiting: collections.deque[list[dist.Work]] = collections.deque()
    sent = 0
    for number, slices in enumerate(_pieces(buffers)):
        piece = torch.cat(slices).to(device)
        sent += piece.numel()
        waiting.append([dist.isend(piece, rank, tag=number % _TAGS) for rank in ranks])
        if len(waiting) >= _UNDER_WAY:
            _finish(waiting.popleft())
    for works in waiting:
        _finish(works)
    return sent


def _receive(buffers: Sequence[torch.Tensor], rank: int, device: torch.device) -> int:
    """Fills some buffers with the bytes that `_send` sends for such ones; returns how many they are."""
    waiting: collections.deque[tuple[dist.Work, torch.Tensor, list[torch.Tensor]]] = collections.deque()
    received = 0
    for number, slices in enumerate(_pieces(buffers)):
        piece = torch.empty(sum(each.numel() for each in slices), dtype=torch.uint8, device=device)
        received += piece.numel()
        waiting.append((dist.irecv(piece, rank, tag=number % _TAGS), piece, slices))
        if len(waiting) >= _UNDER_WAY:
            _spread(*waiting.popleft())
    for each in waiting:
        _spread(*each)
    return received


def _pieces(buffers: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Buffers of bytes as pieces of one size, the last one excepted: each is slices of buffers."""
    slices: list[torch.Tensor] = []
    room = _PIECE
    for buffer in buffers:
        first = 0
        while first < buffer.numel():
            slices.append(buffer[first : first + room])
            first, room = first + slices[-1].numel(), room - slices[-1].numel()
            if not room:
                yield slices
                slices, room = [], _PIECE
    if slices:
        yield slices


def _finish(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()


def _spread(work: dist.Work, piece: torch.Tensor, slices: list[torch.Tensor]) -> None:
    work.wait()
    for into, part in zip(slices, piece.cpu().split([each.numel() for each in slices]), strict=True):
        into.copy_(part)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's memory as bytes; of a tensor in one piece, the memory itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _taken_out(part: Any, tensors: list[torch.Tensor]) -> Any:
    """A state with slots in place of its tensors, which come into the list."""
    if isinstance(part, torch.Tensor):
        tensors.append(part)
        return _Slot(len(tensors) - 1, part.dtype, tuple(part.shape))
    return _rebuilt(part, lambda each: _taken_out(each, tensors))


def _put_in(part: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """A state with its tensors in place of the slots."""
    return tensors[part.number] if isinstance(part, _Slot) else _rebuilt(part, lambda each: _put_in(each, tensors))


def _slots(part: Any) -> list[_Slot]:
    found: list[_Slot] = []

    def find(each: Any) -> Any:
        if isinstance(each, _Slot):
            found.append(each)
            return each
        return _rebuilt(each, find)

    find(part)
    return found


def _rebuilt(part: Any, change: Any) -> Any:
    """A container of states with each of its parts changed; what is no container, as it is."""
    if isinstance(part, dict):
        made = copy.copy(part)  # a module's has an attribute beside its parts
        for key, value in part.items():
            made[key] = change(value)
        return made
    if isinstance(part, list):
        return [change(each) for each in part]
    if type(part) is tuple:
        return tuple(change(each) for each in part)
    return part
