"""The whole seconds by which UTC is behind the common time and TAI, and the leap second that changes both.

The common time has no leap seconds. It follows UTC's fraction of a second alone, which no leap second changes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from foliot_schemas.bounds import FAR_NS
from foliot_sync.settings import NANOSECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot_schemas.clock import ClockState, UtcDisagreement

_MOST_S = FAR_NS // NANOSECONDS
_MOST_TAI_S = 100_000
_DAY_NS = 86_400 * NANOSECONDS
"""A leap second is announced on its own day, and told of for another, so that times before it can still be turned into
UTC."""
_CLOSE_NS = NANOSECONDS
"""So close to a leap second it is not withdrawn any more: a kernel that has passed it announces none either."""
_SURE_S = 60.0
"""The time after which another offset counts: it takes some windows until all hosts have spoken."""
_LATE_S = 3_600.0
"""The same after a leap second that was announced: a daemon sets a clock when it next asks for the time, after 34
minutes at most (NTP's longest poll, 2^11 s)."""


class KernelWord(NamedTuple):
    """A host's kernel's word on UTC."""

    tai_offset_s: int = 0
    """TAI minus UTC; 0: it does not know."""
    leap_s: int | None = None
    """The leap second that it announces: 1 inserted, -1 deleted, 0 none; None: it does not know."""
    leap_utc_ns: int = 0
    """UTC at which that begins."""


def believed(words: Mapping[str, KernelWord], reference: str) -> KernelWord:
    """The word of the reference's host; what that does not know, as most of the others have it."""
    tai_offset_s, leap_s, leap_utc_ns = words.get(reference, KernelWord())
    if not tai_offset_s:
        offsets = Counter(word.tai_offset_s for word in words.values() if word.tai_offset_s)
        tai_offset_s = max(offsets, key=lambda each: (offsets[each], each), default=0)
    if leap_s is None:
        leaps = Counter((word.leap_s or 0, word.leap_utc_ns) for word in words.values() if word.leap_s is not None)
        leap_s, leap_utc_ns = max(leaps, key=lambda each: (leaps[each], each[0], each[1]), default=(None, 0))
    return KernelWord(tai_offset_s, leap_s, leap_utc_ns)


def _tai(offset_s: int) -> int:
    """The offset within the bounds of its field."""
    return min(max(offset_s, 0), _MOST_TAI_S)


class Expected(NamedTuple):
    """The words of kernels that contradict nothing.

    Of two kinds, while some have passed a leap second and others have not.
    """

    tai_offsets_s: tuple[int, ...]
    leaps: tuple[tuple[int, int], ...]
    """As `leap_s` and `leap_utc_ns`."""

    def contradicted(self, word: KernelWord) -> UtcDisagreement:
        """The part of UTC that a kernel contradicts. One that does not know contradicts nothing."""
        offset = word.tai_offset_s != 0 and 0 not in self.tai_offsets_s and word.tai_offset_s not in self.tai_offsets_s
        leap = word.leap_s is not None and (word.leap_s, word.leap_utc_ns if word.leap_s else 0) not in self.leaps
        return "both" if offset and leap else "offset" if offset else "leap" if leap else "none"


class UtcSeconds:
    """The published offsets; names and meanings are those of `ClockState`."""

    def __init__(self) -> None:
        self.utc_offset_s = 0
        self.tai_offset_s = 0
        self.leap_s = 0
        self.leap_at_ns = 0
        self._unlike_s = 0.0
        """The time for which hosts have shown another offset than the published one."""

    def offset_at_s(self, common_ns: int) -> int:
        """How far UTC is behind the common time."""
        return self.utc_offset_s + (self.leap_s if common_ns >= self.leap_at_ns else 0)

    def tai_offset_at_s(self, common_ns: int) -> int:
        """How far UTC is behind TAI; 0: not known."""
        return self.tai_offset_s and self.tai_offset_s + (self.leap_s if common_ns >= self.leap_at_ns else 0)

    def expected(self, common_ns: int) -> Expected:
        """The words of kernels that contradict nothing."""
        before, after = self.tai_offset_s, self.tai_offset_s and self.tai_offset_s + self.leap_s
        announced = (self.leap_s, self.leap_at_ns - self.utc_offset_s * NANOSECONDS) if self.leap_s else (0, 0)
        if not self.leap_s or common_ns < self.leap_at_ns - _CLOSE_NS:
            return Expected((before,), (announced,))
        if common_ns < self.leap_at_ns + _SURE_S * NANOSECONDS:
            return Expected((before, after), (announced, (0, 0)))
        return Expected((after,), ((0, 0),))

    def resume(self, state: ClockState) -> None:
        """Takes up the last offsets of an earlier run, along with its common time."""
        self.utc_offset_s, self.tai_offset_s = state.utc_offset_s, state.tai_offset_s
        self.leap_s, self.leap_at_ns = state.leap_s, state.leap_at_ns

    def put(self, offset_s: int) -> None:
        """Takes how far UTC is behind the common time from now on. A leap second begins at the same UTC as before."""
        before_s, self.utc_offset_s = self.utc_offset_s, min(max(offset_s, -_MOST_S), _MOST_S)
        if self.leap_s:
            self.leap_at_ns += (self.utc_offset_s - before_s) * NANOSECONDS

    def hear(self, word: KernelWord, common_ns: int) -> None:
        """Takes the word that is believed in this window, which was said before this common time."""
        if self.leap_s and common_ns >= self.leap_at_ns + _DAY_NS:
            self.put(self.offset_at_s(common_ns))
            self.tai_offset_s = _tai(self.tai_offset_at_s(common_ns))
            self.leap_s, self.leap_at_ns = 0, 0
        if self.leap_s and common_ns >= self.leap_at_ns - _CLOSE_NS:
            # Some kernels have counted it by now and others not; what was published holds for both sides of it.
            if not self.tai_offset_s and word.tai_offset_s and not word.leap_s:
                self.tai_offset_s = _tai(word.tai_offset_s - self.leap_s)
            return
        self.tai_offset_s = word.tai_offset_s or self.tai_offset_s
        if word.leap_s is not None:
            leap_at_ns = word.leap_utc_ns + self.utc_offset_s * NANOSECONDS
            announced = word.leap_s != 0 and abs(leap_at_ns - common_ns) <= _DAY_NS + _CLOSE_NS
            self.leap_s, self.leap_at_ns = (word.leap_s, leap_at_ns) if announced else (0, 0)

    def measured(self, offset_s: int | None, common_ns: int, span_s: float) -> None:
        """Takes how far most hosts' UTC is behind the common time; None: they do not agree."""
        if offset_s is None or offset_s == self.offset_at_s(common_ns):
            self._unlike_s = 0.0
            return
        self._unlike_s += span_s
        passed = self.leap_s != 0 and common_ns >= self.leap_at_ns
        if self._unlike_s >= (_LATE_S if passed else _SURE_S):
            self._unlike_s = 0.0
            self.put(offset_s)
            if passed:
                self.leap_s, self.leap_at_ns = 0, 0
