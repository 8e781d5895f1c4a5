"""How the ranks of a new group come to one state, at one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist

from foliot.torch.mirror import NO_STEP, StateLostError, common_step
from foliot.torch.state_transfer import Packed, receive, send

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from foliot.torch.mirror import Mirror
    from foliot.torch.state_transfer import Stateful


class CaughtUp(NamedTuple):
    """Where all ranks are now, and what this one was given for it."""

    step: int
    """Steps that the state has."""
    bytes: int = 0
    source: int = -1
    """The rank that gave it; -1: nothing was given."""


def catch_up(state: Mapping[str, Stateful], step: int, device: torch.device) -> CaughtUp:
    """Gives all ranks of the default group the state of those that have done most steps.

    Parameters:
        step: the steps that this rank has done; -1: it has no state, or one that is not whole.

    Raises:
        RuntimeError: the group is broken.
        StateLostError: no rank has a whole state. All ranks find it so.
    """
    rank = dist.get_rank()
    steps = [each for (each,) in _told((step,), device)]
    newest = max(steps)
    if newest == NO_STEP:
        raise StateLostError("each rank that is left had begun to change its state, and had not ended the step")
    having = [each for each, done in enumerate(steps) if done == newest]
    lacking = [each for each, done in enumerate(steps) if done < newest]
    source = {each: having[place % len(having)] for place, each in enumerate(lacking)}
    if rank in source:
        packed = receive(source[rank], device)
        packed.give_to(state)
        return CaughtUp(newest, packed.size, source[rank])
    if taking := [each for each in lacking if source[each] == rank]:
        send(Packed.of(state), taking, device)
    return CaughtUp(newest)


def catch_up_sharded(
    state: Mapping[str, Stateful], shard: Mapping[str, Stateful], mirror: Mirror, device: torch.device
) -> CaughtUp:
    """Takes all ranks of the default group back to the newest step of which all have copies.

    Raises:
        RuntimeError: the group is broken.
        StateLostError: there is no such step. All ranks find it so.
    """
    rank = dist.get_rank()
    kept = _told(mirror.steps, device)
    step = common_step(kept)
    having = [each for each, steps in enumerate(kept) if max(steps) >= 0]
    lacking = [each for each in range(len(kept)) if each not in having]
    taken = CaughtUp(step)
    if rank in having:
        mirror.put_back(step)
    # One after the other on all ranks alike, so that none waits for one that waits for it.
    for place, taker in enumerate(lacking):
        source, keeper = having[place % len(having)], (taker + 1) % len(kept)
        if rank == source:
            send(Packed.of(state), (taker,), device)
        if rank == keeper:
            send(mirror.neighbours(step), (taker,), device)
        if rank == taker:
            alike, own = receive(source, device), receive(keeper, device)
            alike.give_to(state)
            own.give_to(shard)
            taken = CaughtUp(step, alike.size + own.size, source)
    return taken


def _told(numbers: Sequence[int], device: torch.device) -> list[list[int]]:
    """What each rank of the default group says, by rank."""
    own = torch.tensor(numbers, device=device)
    told = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(told, own)
    return [each.tolist() for each in told]
