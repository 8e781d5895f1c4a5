"""This process in a job whose ranks can be replaced: it leaves one group, and comes into another."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import os
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist

from foliot.torch.catch_up import CaughtUp, catch_up, catch_up_sharded
from foliot.torch.changes import Changes
from foliot.torch.collective_log import now_ns
from foliot.torch.group_sockets import GroupSockets
from foliot.torch.kept_buffers import KeptBuffers
from foliot.torch.limit import Limit
from foliot.torch.meeting import FirstMeeting, MeetingError, OwnStore, meeting, wait_for_all, wait_for_one
from foliot.torch.mirror import Mirror, StateLostError
from foliot.torch.process_groups import FormerGroups, abort, tensors_device, waits_in_connections
from foliot.torch.state_transfer import Packed
from foliot.torch.stuck_waits import StuckWaits
from foliot.torch.worker_link import Order, WorkerLink, in_a_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from foliot.torch.collective_log import CollectiveLog, Entry
    from foliot.torch.state_transfer import Stateful

_SPARE = "FOLIOT_SPARE"
_MEET_S = 10.0
"""For so long at least the ranks of a new group wait for one another."""
_ANSWER_S = 10.0
"""After so long without an answer, a place of meeting is given up: its host may be stopped, or cut off. A store tries to
connect for less."""
_JOIN_S = 15.0
"""For so long a group may take to be made, once all ranks are there."""
_YEAR_S = 365 * 86_400.0
_NO_ANSWER = "the place of meeting gave no answer"
_LAST_STEP_S = 2.0
"""For so long ranks that have done their group's last step wait for the others to have done it."""


class Replaced(SystemExit):
    """Another process has this one's rank. It ends the program with status 0, as its work is not lost."""


class _Leave(BaseException):
    """Ends a step's loop, as the group is left. It is no error of the program, which is not to handle it."""


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
    timeout_s: float


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
        self._waits = StuckWaits(log, self._give_up)
        self._changes = Changes(program.state.values(), self._waits.check)
        self._has_state = not self.is_spare
        self.is_over = False
        """Whether its work is done, or it has given up."""
        self._is_first_step = False
        self._is_checked = False
        """Whether its state is such that another rank can be given it."""
        self._lock = threading.Lock()
        """Held while the sockets of a group are ended, or those of another become the present ones."""
        self._limit = Limit(self._lock)
        self._overdue = ""
        """Which collective of the group took too long; empty: none did."""
        self._newest = 0
        """The highest generation that was ordered."""
        self._store = OwnStore()
        self._sockets = GroupSockets(self._store.port)
        self._former = FormerGroups()
        self._first_ports: set[int] = set()
        """Of the place where the first group meets, to which a wait that was given up may still connect."""
        self._link = WorkerLink(job, path, self._obey, self._look)
        self._link.say(
            rank=-1 if self.is_spare else int(os.environ["RANK"]), size=self.size, generation=0, step=self.step,
            stage="spare" if self.is_spare else "forming", meet=self._store.place,
        )  # fmt: skip
        self._link.start()

    @property
    def is_spare(self) -> bool:
        """Whether this process was started as a spare."""
        return os.environ.get(_SPARE, "0") not in {"", "0"}

    def enter_first(self) -> None:
        """Comes into the first group of this process; a spare waits until it is given a rank.

        Raises:
            Replaced: another process has this one's rank.
            RuntimeError: a group did not form, and nobody said what to do.
        """
        if self.is_spare:
            self._form(self._awaited(None))
        else:
            self._form_first()

    def enter_next(self) -> None:
        """Comes into the group that follows the one that was left.

        Raises:
            Replaced: as `enter_first`.
            RuntimeError: likewise.
        """
        self._form(self._awaited(self._program.wait_s))

    # -- in a group ---------------------------------------------------------------------------------------------------

    def end_step(self) -> None:
        """See `Group`."""
        self._waits.check()
        if not self._is_checked:  # by the end of a step, optimizers have their state
            Packed.of(self._program.state)
            Packed.of(self._program.shard)
            self._is_checked = True
        if self._mirror is not None and (self.step + 1) % self._program.mirror_steps == 0:
            self._mirror.keep(self.step + 1, self.rank, self.size, tensors_device())
        self.step += 1
        if self._is_first_step:
            self._is_first_step = False
            self._link.say(step=self.step, first_step_ns=now_ns())
        else:
            self._link.note(step=self.step)
        self._buffers.keep()
        self._changes.end()
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
            self._end("failed", in_a_line(error))
            return False
        if self._order_after(error) is None:
            self._fail(error, f"nobody took the lost rank's place in {self._program.wait_s:g} s: ")
            return False
        self._leave()
        return True

    def _order_after(self, error: Exception) -> Order | None:
        """Says that the group is broken, and waits for what is to be done; None: nothing was said in time."""
        self._waits.left()
        self._link.say(stage="broken", reason=in_a_line(error))
        self._sockets.shut_down()  # of the others, some would wait on
        return self._link.wait_for_order(above=self.generation, within_s=self._program.wait_s)

    def _is_whole(self) -> bool:
        """Whether nothing befell the group, and no order has come: an error is the program's own then."""
        order = self._link.order()
        return (order is None or order.generation <= self.generation) and self._sockets.is_whole

    def _begin_steps(self) -> None:
        self._buffers.begin()
        self._changes.end()
        self._begin_step()

    def _begin_step(self) -> None:
        if self._program.seed is not None:
            torch.manual_seed(_seed_of(self._program.seed, self.rank, self.step))

    def _end(self, stage: str, reason: str) -> None:
        self.is_over = True
        self._link.say(stage=stage, reason=reason, step=self.step)
        self._link.end()

    def _fail(self, error: Exception, why: str = "") -> None:
        """Ends the work with an error.

        Raises:
            RuntimeError: a collective took too long. It says which, in place of what Gloo says.
        """
        reason = why + (self._overdue or in_a_line(error))
        self._end("failed", reason)
        if self._overdue:
            raise RuntimeError(reason) from error

    def _give_up(self) -> None:
        """Ends the process, whose program waits in a collective that nothing ends. A spare takes its rank."""
        reason = self._overdue or "a collective of Gloo's does not end"
        sys.stderr.write(f"foliot: {reason}: this process ends\n")
        sys.stderr.flush()
        self._end("failed", reason)
        os._exit(os.EX_TEMPFAIL)

    # -- out of a group -----------------------------------------------------------------------------------------------

    def _obey(self, order: Order) -> None:
        """Takes an order, in the thread that hears it: who waits in a collective of the group is freed."""
        with self._lock:
            self._newest = max(self._newest, order.generation)
            if self.generation < order.generation and self.step >= order.at_step:
                self._break_off()
                abort()

    def _look(self) -> None:
        """Ends what takes too long, in the thread that hears orders."""
        with self._lock, contextlib.suppress(OSError):  # no further file can be opened
            self._limit.look()
            if waits_in_connections() and (entry := self._log.overdue(self._program.timeout_s)) is not None:
                self._overdue = self._overdue or _late(entry)
                self._break_off()

    def _break_off(self) -> None:
        """Ends what waits in the present group's connections, in another thread than the program's."""
        self._sockets.shut_down()
        if waits_in_connections():
            self._waits.look()

    def _leave_together(self) -> None:
        """Leaves a group after its last step: who closes its connections first could cut off what another waits for."""
        order = self._link.order()
        assert order is not None
        if self.step == order.at_step:
            opened = GroupSockets(self._store.port)
            with contextlib.suppress(RuntimeError, ValueError):  # nobody is there, or the place is none
                if self._mirror is not None and self.step not in self._mirror.steps:
                    self._mirror.keep(self.step, self.rank, self.size, tensors_device())
                with self._limit.within(_ANSWER_S, opened.shut_down, _NO_ANSWER):
                    store = meeting(order.meet, order.generation)
                    wait_for_all(
                        store, "done", self.rank, self.size, within_s=_LAST_STEP_S,
                        give_up=functools.partial(self._is_outdated, order),
                    )  # fmt: skip
        self._leave()

    def _leave(self) -> None:
        self._waits.left()
        self._sockets.shut_down()
        self._former.leave()
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
            self._sockets = GroupSockets(self._store.port)
            self._waits.entered()
        place = FirstMeeting(self.rank, self.size, _at_most_a_year(self._program.timeout_s))

        def end() -> None:
            place.give_up()
            self._break_off()

        try:
            self._first_ports = {int(os.environ["MASTER_PORT"])}
            what = "the first group did not form"
            with self._limit.within(self._program.timeout_s, end, what, self._is_called_away):
                self._program.join(place.wait(), self.rank, self.size)
            self._sockets.formed(but_ports=self._first_ports)
            if self._mirror is not None:
                self._mirror.keep(self.step, self.rank, self.size, tensors_device())
        except Exception as error:
            order = self._order_after(error) if isinstance(error, RuntimeError) else None
            if order is None:
                self._fail(error)
                raise
            self._leave()
            self._form(order)
            return
        self._begin_steps()
        self._link.say(stage="training")

    def _form(self, order: Order) -> None:
        """Forms the group of an order, or of a later one if that fails."""
        while True:
            if order.rank < 0:
                self._end("over", "another process has the rank")
                raise Replaced(0)
            try:
                self._form_once(order)
            except Exception as error:
                self._say_unformed(order, error)
                self._leave()
                later = self._link.wait_for_order(above=order.generation, within_s=self._program.wait_s)
                if later is None:
                    self._fail(error)
                    raise
                order = later
            else:
                return

    def _say_unformed(self, order: Order, error: Exception) -> None:
        """Says that a group did not form. It is broken if nothing else was ordered, and another try may be better."""
        reason = self._overdue or in_a_line(error)
        is_final = isinstance(error, StateLostError) or not isinstance(error, RuntimeError)
        if is_final or self._newest > order.generation:
            self._link.say(reason=reason)
        else:
            self._link.say(stage="broken", reason=reason)

    def _form_once(self, order: Order) -> None:
        with self._lock:
            if self._newest > order.generation:
                raise MeetingError("there is another order")
            self.generation, self._sockets = order.generation, GroupSockets(self._store.port)
            self._overdue = ""
            self._waits.entered()
        self.rank, self.size = order.rank, order.size
        self._log.generation = order.generation
        self._link.say(stage="forming", generation=order.generation, rank=order.rank, reason="")
        with self._limit.within(_ANSWER_S, self._break_off, _NO_ANSWER):
            store = self._met(order)
        with self._limit.within(_JOIN_S, self._break_off, "the group was not made", self._is_called_away):
            self._program.join(store, self.rank, self.size)
        self._sockets.formed(but_ports={int(order.meet.rpartition(":")[2]), *self._first_ports})
        self._link.say(stage="copying", formed_ns=now_ns())
        self._catch_up()
        self._begin_steps()
        self._is_first_step = True
        self._link.say(stage="training", copied_ns=now_ns(), step=self.step)

    def _met(self, order: Order) -> dist.Store:
        """The store at which all ranks of the group are, once they are there.

        Others may compute for long before they see that their group is over, so this waits as long as they may.
        """
        store = meeting(order.meet, order.generation)
        give_up = functools.partial(self._is_outdated, order)
        if self._has_state:
            store.set("left", "")
        elif order.at_step:  # the others do steps until then, however long these are
            wait_for_one(store, "left", give_up=give_up)
        within_s = max(_MEET_S, self._program.wait_s)
        wait_for_all(store, "there", self.rank, self.size, within_s=within_s, give_up=give_up)
        # Groups that NCCL makes later, as they are used first, ask it too.
        store.set_timeout(dt.timedelta(seconds=_at_most_a_year(self._program.timeout_s)))
        return store

    def _is_called_away(self) -> bool:
        """Whether an order asks for another group than the present one, or the one that is being made."""
        order = self._link.order()
        return order is not None and order.generation > self.generation and self.step >= order.at_step

    def _is_outdated(self, order: Order) -> bool:
        """Whether there is a later order. It is asked when the place of meeting has answered just now."""
        self._limit.renew()
        return self._newest > order.generation

    def _catch_up(self) -> None:
        """Comes to the state and the step of the others."""
        device, done = tensors_device(), self.step
        try:
            now = self._caught_up(done, device)
        except StateLostError as error:
            now = self._reloaded(error)
        if self._mirror is not None:
            self._mirror.keep(now.step, self.rank, self.size, device)
        for part in (*self._program.state.values(), *self._program.shard.values()):
            if hasattr(part, "zero_grad"):
                part.zero_grad()  # of a step that was not done to its end
        self._link.say(state_bytes=now.bytes, state_from=now.source, lost_steps=max(0, done - now.step))
        self.step, self._has_state = now.step, True

    def _caught_up(self, done: int, device: torch.device) -> CaughtUp:
        if self._mirror is not None:
            return catch_up_sharded(self._program.state, self._program.shard, self._mirror, device)
        self._buffers.put_back()  # before they are given to others
        is_whole = self._has_state and not self._changes.is_under_way
        return catch_up(self._program.state, done if is_whole else -1, device)

    def _reloaded(self, error: StateLostError) -> CaughtUp:
        if self._program.reload is None:
            raise error
        if self._mirror is not None:
            self._mirror.forget()
        now = CaughtUp(self._program.reload(self.rank))
        self._link.say(reason=f"all are back at step {now.step}, by the last checkpoint: {error}")
        return now


def _late(entry: Entry) -> str:
    """What took too long, and how long it has taken, in words."""
    took_s = (now_ns() - entry.began_ns) * 1e-9
    what = f"{entry.operation} {entry.number}" if entry.peer < 0 else f"{entry.operation} with rank {entry.peer}"
    return f"{what} of the group {entry.group.name} had not ended after {took_s:.1f} s"


def _at_most_a_year(seconds: float) -> float:
    """A time limit that PyTorch's stores can take."""
    return min(seconds, _YEAR_S)


def _seed_of(seed: int, rank: int, step: int) -> int:
    """The seed of a rank's step: any process that has the rank draws the same."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{rank}/{step}".encode(), digest_size=8).digest(), "big") >> 1
