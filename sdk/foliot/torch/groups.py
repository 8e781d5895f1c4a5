"""A job whose ranks can be replaced: its process groups, one after the other, until its work is done.

    for group in foliot.torch.groups({"model": model, "optimizer": optimizer}, join=join):
        with group:
            parallel = DistributedDataParallel(model)
            while group.step < STEPS:
                train(parallel, optimizer, batch(group.rank, group.step))
                group.end_step()

Where a rank is lost, the others' collectives end with an error. The `with` statement holds that error back until the
agent says who takes the rank. Then a new group forms. Who has done most steps gives its state to those that have done
fewer, and all go on from there.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import torch
import torch.distributed as dist

from foliot.torch.catch_up import CaughtUp, catch_up, catch_up_sharded
from foliot.torch.collective_log import now_ns
from foliot.torch.group_sockets import GroupSockets
from foliot.torch.kept_buffers import KeptBuffers
from foliot.torch.meeting import MeetingError, OwnStore, meeting, wait_for_all, wait_for_one
from foliot.torch.mirror import Mirror, StateLostError
from foliot.torch.worker_link import Order, WorkerLink, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from foliot.torch.collective_log import CollectiveLog
    from foliot.torch.state_transfer import Stateful

_SPARE = "FOLIOT_SPARE"
_MEET_S = 10.0
"""For so long the ranks of a new group wait for one another."""
_JOIN_S = 15.0
"""For so long a group may take to be made, once all ranks are there."""
_KEPT_GROUPS = 2
_MOST_REASON = 512
_LAST_STEP_S = 2.0
"""For so long ranks that have done their group's last step wait for the others to have done it."""


class Replaced(SystemExit):
    """Another process has this one's rank. It ends the program with status 0, as its work is not lost."""


class _Leave(BaseException):
    """Ends a step's loop, as the group is left. It is no error of the program, which is not to handle it."""


class Group:
    """One process group of the job. Use it in a `with` statement, and make everything that needs the group there."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def rank(self) -> int:
        """This process's rank in the job. It stays the same in all groups."""
        return self._worker.rank

    @property
    def size(self) -> int:
        """How many ranks the job has."""
        return self._worker.size

    @property
    def generation(self) -> int:
        """The group's number, from 0."""
        return self._worker.generation

    @property
    def step(self) -> int:
        """How many steps the job has done: the number of the one that is to be done next."""
        return self._worker.step

    def end_step(self) -> None:
        """Says that a step is done. Call it when the state is whole: after the optimizer's step."""
        self._worker.end_step()

    def __enter__(self) -> Self:
        """Begins to work in the group."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[True] | None:
        """Ends the work in the group; holds an error back if a new group follows."""
        return True if self._worker.left_by(error) else None


class Program(NamedTuple):
    """What the job's program says of itself, see `foliot.torch.groups`."""

    state: Mapping[str, Stateful]
    shard: Mapping[str, Stateful]
    join: Callable[[dist.Store, int, int], None]
    reload: Callable[[int], int] | None
    step: int
    seed: int | None
    mirror_steps: int
    wait_s: float


class Worker:
    """This process in its job: one with a rank, or a spare.

    Parameters:
        job: the job's name.
        path: of the agent's socket.
    """

    def __init__(self, program: Program, job: str, path: str, log: CollectiveLog) -> None:
        self.rank, self.size = -1, int(os.environ["WORLD_SIZE"])
        self.generation = 0
        self.step = program.step
        self._program = program
        self._log = log
        self._mirror = Mirror(program.state, program.shard) if program.shard else None
        self._buffers = KeptBuffers(program.state.values() if self._mirror is None else ())
        self._has_state = not self.is_spare
        self._is_over = False
        self._is_first_step = False
        self._lock = threading.Lock()
        """Held while the sockets of a group are ended, or those of another become the present ones."""
        self._newest = 0
        """The highest generation that was ordered."""
        self._sockets = GroupSockets()
        self._former: collections.deque[list[Any]] = collections.deque(maxlen=_KEPT_GROUPS)
        """The process groups that were left last. Gloo's threads may need Python's lock to end their last work; who lets
        go of a group waits for them, and has that lock."""
        self._store = OwnStore()
        self._link = WorkerLink(job, path, self._obey)
        self._link.say(
            rank=-1 if self.is_spare else int(os.environ["RANK"]), size=self.size, generation=0, step=self.step,
            stage="spare" if self.is_spare else "forming", meet=self._store.place,
        )  # fmt: skip
        self._link.start()

    @property
    def is_spare(self) -> bool:
        """Whether this process was started as a spare."""
        return bool(os.environ.get(_SPARE))

    def groups(self) -> Iterator[Group]:
        """The groups that this process is in.

        Raises:
            Replaced: another process has this one's rank.
            RuntimeError: a group did not form, and nobody said what to do.
        """
        if self.is_spare:
            self._form(self._awaited(None))
        else:
            self._form_first()
        while True:
            yield Group(self)
            if self._is_over:
                return
            self._form(self._awaited(self._program.wait_s))

    # -- in a group ---------------------------------------------------------------------------------------------------

    def end_step(self) -> None:
        """See `Group`."""
        if self._mirror is not None and (self.step + 1) % self._program.mirror_steps == 0:
            self._mirror.keep(self.step + 1, self.rank, self.size, _device())
        self.step += 1
        if self._is_first_step:
            self._is_first_step = False
            self._link.say(step=self.step, first_step_ns=now_ns())
        else:
            self._link.note(step=self.step)
        self._buffers.keep()
        self._begin_step()
        order = self._link.order()
        if order is not None and order.generation > self.generation and self.step >= order.at_step:
            raise _Leave

    def left_by(self, error: BaseException | None) -> bool:
        """Takes the end of the work in a group; returns whether another group follows."""
        if error is None:
            self._end("over", "")
            return False
        if isinstance(error, _Leave):
            self._leave_together()
            return True
        if not isinstance(error, Exception) or self._is_whole():
            self._end("failed", shortened(error))
            return False
        if self._order_after(error) is None:
            self._end("failed", f"nobody took the lost rank's place in {self._program.wait_s:g} s: {shortened(error)}")
            return False
        self._leave()
        return True

    def _order_after(self, error: Exception) -> Order | None:
        """Says that the group is broken, and waits for what is to be done; None: nothing was said in time."""
        self._link.say(stage="broken", reason=shortened(error))
        self._sockets.shut_down(but_port=self._store.port)  # of the others, some would wait on
        return self._link.wait_for_order(above=self.generation, within_s=self._program.wait_s)

    def _is_whole(self) -> bool:
        """Whether nothing befell the group, and no order has come: an error is the program's own then."""
        order = self._link.order()
        return (order is None or order.generation <= self.generation) and self._sockets.is_whole

    def _begin_step(self) -> None:
        if self._program.seed is not None:
            torch.manual_seed(_seed_of(self._program.seed, self.rank, self.step))

    def _end(self, stage: str, reason: str) -> None:
        self._is_over = True
        self._link.say(stage=stage, reason=reason, step=self.step)
        self._link.end()

    # -- out of a group -----------------------------------------------------------------------------------------------

    def _obey(self, order: Order) -> None:
        """Takes an order, in the thread that hears it: who waits in a collective of the group is freed."""
        with self._lock:
            self._newest = max(self._newest, order.generation)
            if self.generation < order.generation and self.step >= order.at_step:
                self._sockets.shut_down(but_port=self._store.port)
                _abort()

    def _leave_together(self) -> None:
        """Leaves a group after its last step: who closes its connections first could cut off what another waits for."""
        order = self._link.order()
        assert order is not None
        if self.step == order.at_step:
            with contextlib.suppress(RuntimeError, ValueError):  # nobody is there, or the place is none
                if self._mirror is not None and self.step not in self._mirror.steps:
                    self._mirror.keep(self.step, self.rank, self.size, _device())
                store = meeting(order.meet, order.generation)
                wait_for_all(
                    store, "done", self.rank, self.size, within_s=_LAST_STEP_S,
                    give_up=lambda: self._newest > order.generation,
                )  # fmt: skip
        self._leave()

    def _leave(self) -> None:
        self._sockets.shut_down(but_port=self._store.port)
        with contextlib.suppress(Exception):
            self._former.append(list(dist.distributed_c10d._world.pg_map))  # noqa: SLF001 - there is no public way
            if dist.is_initialized():
                dist.destroy_process_group()
            # Of a group that was not made to its end, PyTorch keeps the number, by which ranks find one another.
            dist.distributed_c10d._world.group_count = 0  # noqa: SLF001 - likewise
        self._log.leave()
        self._link.say(left_ns=now_ns(), formed_ns=0, copied_ns=0, first_step_ns=0, state_bytes=0, state_from=-1)

    def _awaited(self, within_s: float | None) -> Order:
        order = self._link.wait_for_order(above=self.generation, within_s=within_s)
        if order is None:
            raise MeetingError(f"no order came in {within_s} s")
        return order

    # -- into a group -------------------------------------------------------------------------------------------------

    def _form_first(self) -> None:
        self.rank = int(os.environ["RANK"])
        with self._lock:
            self._sockets = GroupSockets()
        try:
            store, _, _ = next(dist.rendezvous("env://", self.rank, self.size))
            self._program.join(store, self.rank, self.size)
            self._formed(int(os.environ["MASTER_PORT"]))
            if self._mirror is not None:
                self._mirror.keep(self.step, self.rank, self.size, _device())
        except Exception as error:
            order = self._order_after(error) if isinstance(error, RuntimeError) else None
            if order is None:
                self._end("failed", shortened(error))
                raise
            self._leave()
            self._form(order)
            return
        self._buffers.begin()
        self._begin_step()
        self._link.say(stage="training")

    def _form(self, order: Order) -> None:
        """Forms the group of an order, or of a later one if that fails."""
        until_s = 0.0
        while True:
            if order.rank < 0:
                self._end("over", "another process has the rank")
                raise Replaced(0)
            try:
                self._form_once(order)
            except Exception as error:
                self._link.say(reason=shortened(error))
                self._leave()
                until_s = until_s or time.monotonic() + self._program.wait_s
                later = self._link.wait_for_order(above=order.generation, within_s=max(0.0, until_s - time.monotonic()))
                if later is None:
                    self._end("failed", shortened(error))
                    raise
                order = later
                continue
            return

    def _form_once(self, order: Order) -> None:
        with self._lock:
            if self._newest > order.generation:
                raise MeetingError("there is another order")
            self.generation, self._sockets = order.generation, GroupSockets()
        self.rank, self.size = order.rank, order.size
        self._log.generation = order.generation
        self._link.say(stage="forming", generation=order.generation, rank=order.rank, reason="")
        store = meeting(order.meet, order.generation)
        if self._has_state:
            store.set("left", "")
        elif order.at_step:  # the others do steps until then, however long these are
            wait_for_one(store, "left", give_up=lambda: self._newest > order.generation)
        wait_for_all(
            store, "there", self.rank, self.size, within_s=_MEET_S, give_up=lambda: self._newest > order.generation
        )
        self._join_in_time(store)
        self._formed(int(order.meet.rpartition(":")[2]))
        self._link.say(stage="copying", formed_ns=now_ns())
        self._catch_up()
        self._buffers.begin()
        self._begin_step()
        self._is_first_step = True
        self._link.say(stage="training", copied_ns=now_ns(), step=self.step)

    def _join_in_time(self, store: dist.Store) -> None:
        """Makes the group. If a rank is lost just then, the others would wait for it as long as a collective may take."""
        alarm = threading.Timer(_JOIN_S, self._sockets.shut_down, kwargs={"but_port": self._store.port})
        alarm.daemon = True
        alarm.start()
        try:
            self._program.join(store, self.rank, self.size)
        finally:
            alarm.cancel()

    def _formed(self, port: int) -> None:
        self._sockets.formed(but_ports=(self._store.port, port))

    def _catch_up(self) -> None:
        """Comes to the state and the step of the others."""
        device, done = _device(), self.step
        if self._mirror is None:
            self._buffers.put_back()  # before they are given to others
            now = catch_up(self._program.state, done if self._has_state else -1, device)
        else:
            now = self._caught_up_sharded(self._mirror, device)
        for part in (*self._program.state.values(), *self._program.shard.values()):
            if hasattr(part, "zero_grad"):
                part.zero_grad()  # of a step that was not done to its end
        self._link.say(state_bytes=now.bytes, state_from=now.source, lost_steps=max(0, done - now.step))
        self.step, self._has_state = now.step, True

    def _caught_up_sharded(self, mirror: Mirror, device: torch.device) -> CaughtUp:
        try:
            now = catch_up_sharded(self._program.state, self._program.shard, mirror, device)
        except StateLostError as error:
            if self._program.reload is None:
                raise
            mirror.forget()
            now = CaughtUp(self._program.reload(self.rank))
            self._link.say(reason=f"all are back at step {now.step}, by the last checkpoint: {error}"[:_MOST_REASON])
        mirror.keep(now.step, self.rank, self.size, device)
        return now


def default_join(store: dist.Store, rank: int, size: int) -> None:
    """Makes the default group, by NCCL where there is a GPU, else by Gloo."""
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)


def _seed_of(seed: int, rank: int, step: int) -> int:
    """The seed of a rank's step: any process that has the rank draws the same."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{rank}/{step}".encode(), digest_size=8).digest(), "big") >> 1


def _device() -> torch.device:
    """Of which the default group's backend takes tensors."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _abort() -> None:
    """Ends what waits in NCCL, whose collectives wait on the GPU."""
    if not dist.is_initialized() or "nccl" not in dist.get_backend():
        return
    with contextlib.suppress(Exception):
        group: Any = dist.distributed_c10d._get_default_group()  # noqa: SLF001 - there is no public way
        group._get_backend(torch.device("cuda")).abort()  # noqa: SLF001
