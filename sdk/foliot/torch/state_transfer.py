"""The state of a job from a rank that has it to one that lacks it: tensors as they are, the rest as plain values.

The bytes of all tensors go as one stream, in pieces. So a state of few large tensors and one of many small ones take the
same time, and the sender needs room for some pieces alone.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
import torch.distributed as dist

from foliot.torch import plain_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PIECE = 1 << 20
"""Bytes of a piece."""
_UNDER_WAY = 8
"""Pieces that are on their way to a rank at a time."""
_TAGS = 64
"""Pieces in turn have different tags: Gloo chooses the device that sends by the tag."""


class Stateful(Protocol):
    """What has a state: a module, an optimizer, a schedule of rates, a loader of data."""

    def state_dict(self) -> Any:
        """Its state."""

    def load_state_dict(self, state: Any) -> Any:
        """Takes a state."""


class Packed(NamedTuple):
    """The state of some parts, in the form in which it is sent."""

    skeleton: bytes
    """All but the tensors, see `plain_state`."""
    tensors: list[torch.Tensor]

    @classmethod
    def of(cls, parts: Mapping[str, Stateful]) -> Packed:
        """The state as it is now. Its tensors are the parts' own.

        Raises:
            TypeError: a state has more than tensors and plain values.
        """
        return cls(*plain_state.taken_apart({name: each.state_dict() for name, each in parts.items()}))

    @property
    def size(self) -> int:
        """Its bytes."""
        bytes_: int = sum(each.numel() * each.element_size() for each in self.tensors)
        return len(self.skeleton) + bytes_

    def copied(self) -> Packed:
        """The same with tensors of its own, in the host's memory."""
        return Packed(self.skeleton, [each.detach().to("cpu", copy=True) for each in self.tensors])

    def give_to(self, parts: Mapping[str, Stateful]) -> None:
        """Makes the parts what they were.

        Raises:
            KeyError: it has a part that is not there.
            ValueError: it is no state.
        """
        for name, state in plain_state.put_together(self.skeleton, self.tensors).items():
            parts[name].load_state_dict(state)


def send(packed: Packed, ranks: Sequence[int], device: torch.device) -> None:
    """Sends a state to ranks of the default group.

    Parameters:
        device: the type of device whose tensors the group's backend sends.

    Raises:
        RuntimeError: the group is broken, or a tensor has no plain memory, as a sparse one.
    """
    for buffers in _streams(packed):
        outgoing = _Outgoing(buffers, ranks, device)
        while outgoing.advance():
            pass
        outgoing.finish()


def receive(rank: int, device: torch.device) -> Packed:
    """Takes the state that a rank of the default group sends.

    Raises:
        RuntimeError: the group is broken.
        ValueError: what came is no state.
    """
    return _exchanged(None, (), rank, device)


def exchange(packed: Packed, to: int, source: int, device: torch.device) -> Packed:
    """Sends a state to one rank, and meanwhile takes that of another one.

    Raises:
        RuntimeError: as `send`.
        ValueError: as `receive`.
    """
    return _exchanged(packed, (to,), source, device)


def _exchanged(packed: Packed | None, to: Sequence[int], source: int, device: torch.device) -> Packed:
    streams: Iterator[list[torch.Tensor]] = iter(([], [], [])) if packed is None else _streams(packed)
    length = torch.zeros(8, dtype=torch.uint8)
    _pass(next(streams), to, [length], source, device)
    skeleton = torch.empty(int(length.view(torch.int64).item()), dtype=torch.uint8)
    _pass(next(streams), to, [skeleton], source, device)
    taken = skeleton.numpy().tobytes()
    tensors = [torch.empty(slot.shape, dtype=slot.type) for slot in plain_state.slots(taken)]
    _pass(next(streams), to, [_bytes(each) for each in tensors], source, device)
    return Packed(taken, tensors)


def _streams(packed: Packed) -> Iterator[list[torch.Tensor]]:
    """The three streams of bytes that a state is sent as: the skeleton's length, the skeleton, the tensors."""
    yield [torch.tensor([len(packed.skeleton)]).view(torch.uint8)]
    yield [torch.frombuffer(bytearray(packed.skeleton), dtype=torch.uint8)]
    yield [_bytes(each) for each in packed.tensors]


def _pass(
    out: Sequence[torch.Tensor], to: Sequence[int], into: Sequence[torch.Tensor], source: int, device: torch.device
) -> None:
    """Sends the bytes of some buffers while others are filled: two ranks that send to each other do not wait."""
    outgoing, incoming = _Outgoing(out, to, device), _Incoming(into, source, device)
    while outgoing.advance() | incoming.advance():
        pass
    outgoing.finish()
    incoming.finish()


class _Outgoing:
    """The bytes of some buffers on their way to ranks."""

    def __init__(self, buffers: Sequence[torch.Tensor], ranks: Sequence[int], device: torch.device) -> None:
        self._pieces = enumerate(_pieces(buffers))
        self._ranks = ranks
        self._device = device
        self._waiting: collections.deque[list[dist.Work]] = collections.deque()

    def advance(self) -> bool:
        """Sends one more piece; False: there is none."""
        number, slices = next(self._pieces, (0, None))
        if slices is None:
            return False
        piece = torch.cat(slices).to(self._device)
        self._waiting.append([dist.isend(piece, rank, tag=number % _TAGS) for rank in self._ranks])
        if len(self._waiting) >= _UNDER_WAY:
            self._wait()
        return True

    def finish(self) -> None:
        """Waits until all has left."""
        while self._waiting:
            self._wait()

    def _wait(self) -> None:
        for work in self._waiting.popleft():
            work.wait()


class _Incoming:
    """The bytes that `_Outgoing` sends for buffers of these sizes, on their way here."""

    def __init__(self, buffers: Sequence[torch.Tensor], rank: int, device: torch.device) -> None:
        self._pieces = enumerate(_pieces(buffers))
        self._rank = rank
        self._device = device
        self._waiting: collections.deque[tuple[dist.Work, torch.Tensor, list[torch.Tensor]]] = collections.deque()

    def advance(self) -> bool:
        """Asks for one more piece; False: there is none."""
        number, slices = next(self._pieces, (0, None))
        if slices is None:
            return False
        piece = torch.empty(sum(each.numel() for each in slices), dtype=torch.uint8, device=self._device)
        self._waiting.append((dist.irecv(piece, self._rank, tag=number % _TAGS), piece, slices))
        if len(self._waiting) >= _UNDER_WAY:
            self._wait()
        return True

    def finish(self) -> None:
        """Waits until all is here."""
        while self._waiting:
            self._wait()

    def _wait(self) -> None:
        work, piece, slices = self._waiting.popleft()
        work.wait()
        for into, part in zip(slices, piece.cpu().split([each.numel() for each in slices]), strict=True):
            into.copy_(part)


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


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's memory as bytes; of a tensor in one piece, the memory itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
