"""The datagrams between agents: sealed with the fleet's key, and guarded against replay. Pure.

A datagram is 32 bytes of HMAC-SHA256 (RFC 2104) under the fleet's key over all that follows, then the message.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Literal

import msgspec

from foliot_schemas import encode
from foliot_schemas.notice import Echo, Notice, NoticeSeen

if TYPE_CHECKING:
    Datagram = Notice | NoticeSeen | Echo

_DIGEST_BYTES = 32
_STALE_NS = 10_000_000_000
"""A notice is repeated for two seconds. By synchronised clocks, one that is further from now than this is somebody's
recording. Or it is from the future, and would stand in the way of all that come before its time."""


class Seal:
    """Seals and opens datagrams under one key."""

    def __init__(self, key: str) -> None:
        self._keyed = hmac.new(key.encode(), digestmod="sha256")
        self._decoder = msgspec.msgpack.Decoder(Notice | NoticeSeen | Echo)

    def close(self, message: Datagram) -> bytes:
        """The datagram that carries the message."""
        body = encode(message)
        return self._digest(body) + body

    def open(self, data: bytes) -> Datagram:
        """The message that a datagram carries.

        Raises:
            ValueError: the seal is not of this key, or what it covers is no message.
        """
        body = data[_DIGEST_BYTES:]
        if not hmac.compare_digest(self._digest(body), data[:_DIGEST_BYTES]):
            raise ValueError("the seal does not fit: another key, or not from an agent")
        try:
            message: Datagram = self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ValueError(f"sealed, but not a message: {error}") from error
        return message

    def _digest(self, body: bytes) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(body)
        return keyed.digest()


class ReplayGuard:
    """Lets each notice through once, and none that is older than one let through before about the same NIC.

    Datagrams overtake each other: one about another NIC says nothing of this one.
    """

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], Notice] = {}

    def judge(self, notice: Notice, now_ns: int, *, synchronised: bool) -> Literal["new", "repeat", "old"]:
        """Judges a notice whose seal fits.

        Within a boot of its sender the sequence decides; over a boot, the time, because sequences start anew.
        """
        heard = self._heard.get((notice.node, notice.rail))
        if heard is not None and _boot(heard) == _boot(notice):
            if notice.sequence == heard.sequence:
                return "repeat"
            if notice.sequence < heard.sequence:
                return "old"
        elif heard is not None and notice.at_ns <= heard.at_ns:
            return "old"
        if synchronised and abs(now_ns - notice.at_ns) > _STALE_NS:
            return "old"
        self._heard[notice.node, notice.rail] = notice
        return "new"

    def forget(self, peer: str) -> None:
        """Forgets a peer that has left the fleet: nothing is taken from a node that is not in the inventory.

        Should it return, its old notices are refused by their time. Where this clock is not synchronised they pass, as
        after a restart of the agent.
        """
        for place in [place for place in self._heard if place[0] == peer]:
            del self._heard[place]


def _boot(notice: Notice) -> str:
    return notice.fault.partition("/")[0]
