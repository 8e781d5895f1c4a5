"""A worker's connection to the agent of its node: it says how the worker is, and hears which rank it is to take."""

from __future__ import annotations

import json
import os
import select
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from foliot.torch.agent_socket import AgentSocket
from foliot.torch.collective_log import now_ns

if TYPE_CHECKING:
    from collections.abc import Callable

_EACH_S = 0.5
"""How often the agent is told at least, and how often it is looked for."""
_LAST_S = 1.0
"""How long the process's end waits for the last word to be said."""
_MOST_BYTES = 1 << 16
_MOST_REASON = 512


class Order(NamedTuple):
    """What the fleet wants of this process."""

    generation: int
    """Of the group that is to be formed."""
    rank: int
    """This process's in it; -1: another has it, and this one is to end."""
    size: int
    meet: str
    """Address and port of the store at which all meet."""
    at_step: int
    """Leave the present group when so many steps are done; 0: at once."""
    cause: str


class WorkerLink:
    """The thread that speaks with the agent. The agent's absence delays nothing but orders.

    Parameters:
        job: the job's name.
        path: of the agent's socket.
        obey: called in the thread with each new order, before anybody else hears of it.
        look: called in the thread twice a second at least.
    """

    def __init__(
        self, job: str, path: str, obey: Callable[[Order], None], look: Callable[[], None] = lambda: None
    ) -> None:
        self.process = now_ns()
        self._obey = obey
        self._look = look
        self._said: dict[str, Any] = {"kind": "worker", "job": job, "process": self.process}
        self._order: Order | None = None
        self._news = threading.Condition()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._socket = AgentSocket(path, _EACH_S)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="foliot-worker", daemon=True)

    def start(self) -> None:
        """Begins to speak. `say` comes first."""
        self._thread.start()

    def say(self, *, reason: str | None = None, **what: Any) -> None:
        """Changes what the agent is told, and tells it soon."""
        if reason is not None:
            what["reason"] = reason[:_MOST_REASON]
        self.note(**what)
        os.eventfd_write(self._wake, 1)

    def note(self, **what: Any) -> None:
        """Changes what the agent is told the next time."""
        with self._news:
            self._said |= what

    def order(self) -> Order | None:
        """The newest order; None: there was none."""
        return self._order

    def wait_for_order(self, *, above: int, within_s: float | None) -> Order | None:
        """Waits for an order of a later generation than one; None: none came in time.

        Parameters:
            within_s: how long it waits; None: for ever.
        """
        with self._news:
            self._news.wait_for(lambda: self._order is not None and self._order.generation > above, within_s)
            return self._order if self._order is not None and self._order.generation > above else None

    def end(self) -> None:
        """Says the last word, if an agent listens, and ends."""
        self._is_over = True
        self.say()
        self._thread.join(_LAST_S)

    def _run(self) -> None:
        while True:
            is_last = self._is_over
            self._speak()
            if is_last:
                self._socket.close()
                return
            self._listen()
            self._look()

    def _speak(self) -> None:
        if self._socket.connect():
            with self._news:
                packet = json.dumps(self._said, separators=(",", ":")).encode()
            self._socket.send(packet)  # where the agent is slow, the next word says the same and more

    def _listen(self) -> None:
        """Waits until there is something to say, and takes what is heard meanwhile."""
        asked = select.poll()  # a program may have more files open than select can take
        asked.register(self._wake, select.POLLIN)
        if (connection := self._socket.file) >= 0:
            asked.register(connection, select.POLLIN)
        ready = {file for file, _ in asked.poll(1000 * _EACH_S)}
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if connection in ready and (packet := self._socket.receive(_MOST_BYTES)):
            self._take(packet)

    def _take(self, packet: bytes) -> None:
        try:
            said = json.loads(packet)
            if said.get("kind") != "replace":
                return  # a later agent's
            numbers = [int(said[name]) for name in ("generation", "rank", "size", "at_step")]
            order = Order(numbers[0], numbers[1], numbers[2], str(said["meet"]), numbers[3], str(said["cause"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if self._order is not None and order.generation <= self._order.generation:
            return
        self._obey(order)
        with self._news:
            self._order = order
            self._news.notify_all()


def in_a_line(error: BaseException) -> str:
    """An error in a line, for the agent."""
    return f"{type(error).__name__}: {error}"
