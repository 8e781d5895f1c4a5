"""The world of a run: oscillators by day and night, hosts that sleep and start again, links that come and go, loads.

Streams, queues and stamps are those of `bench.clock_sim` (`foliot_lab.simulate.clocks`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bench.clock_days.upsets import LIES, WINDOW_S
from foliot_lab.simulate.clocks.oscillators import SECOND_NS, STEP_NS, Crystal, Oscillators
from foliot_lab.simulate.clocks.queueing import Fabric, Queues
from foliot_lab.simulate.clocks.streams import Fleet, Probing, Sent, Stamping, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bench.clock_days.upsets import Plan, Upset
    from foliot_schemas import StampBatch

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

WINDOW_NS = round(WINDOW_S * SECOND_NS)
DAY_S = 86_400.0
MIDNIGHT_NS = 1_700_006_400 * SECOND_NS
"""The end of a UTC day, as POSIX counts."""
TAI_S = 37
"""TAI minus UTC before the leap second."""
_DAY_PPB = (100.0, 500.0)
"""Amplitude of a clock's rate by day and night. A quartz changes by 50 to 100 ppb a kelvin, and a data hall by some
kelvin."""
_AFTERNOON_S = 7_200.0
"""By up to so much, hosts are warmest before or after the others."""
_WARMS_S = (2.0, 120.0)
"""Time constant with which a quartz follows its fan."""
_UTC_ERROR_NS = 20_000
_UTC_OFF_NS = 3_000.0
"""Standard deviation of what the daemons of hosts leave of their error, which they state with `_UTC_ERROR_NS`."""
_READ_NS = 50.0
_WITHOUT_UTC_S = 40.0
"""The time after a boot in which a host's daemon does not know UTC."""
_AWAKE_OFF_NS = 0.3 * SECOND_NS
_AWAKE_WRONG_S = 30.0
"""A host that wakes takes the time from its hardware clock, wrong by so much. Its kernel goes on for a while as if it
had UTC."""
_UPTIME_NS = 15 * SECOND_NS
"""Local time of a host that has booted, as its probe starts."""
_UNREAD_S = 2.5 * WINDOW_S
"""The time after which nothing asks any more what a host's clock showed before."""
_SPINES, _NICS_PER_LEAF = 2, 2


class Temperature:
    """The effect of day and night, and of fans, on each oscillator's rate."""

    def __init__(self, hosts: int, random: np.random.Generator) -> None:
        self._random = random
        self._amplitude_ppb = random.uniform(*_DAY_PPB, hosts)
        self._phase_s = random.uniform(0, DAY_S) + random.uniform(-_AFTERNOON_S, _AFTERNOON_S, hosts)
        self._from_s, self._warms_s = np.zeros(hosts), np.ones(hosts)
        self._before_ppb, self._after_ppb = np.zeros(hosts), np.zeros(hosts)

    def fan(self, host: int, at_s: float, level_ppb: float) -> None:
        """A host's fan changes its speed, which leads its oscillator to another rate."""
        self._before_ppb[host] = self._fan_ppb(np.array([at_s]))[host, 0]
        self._after_ppb[host], self._from_s[host] = level_ppb, at_s
        self._warms_s[host] = np.exp(self._random.uniform(*np.log(_WARMS_S)))

    def __call__(self, at_s: Floats) -> Floats:
        """By how many ppb each clock is faster at these times, a row a clock."""
        turns = 2 * np.pi * (at_s - self._phase_s[:, None]) / DAY_S
        rates: Floats = self._amplitude_ppb[:, None] * np.cos(turns) + self._fan_ppb(at_s)
        return rates

    def _fan_ppb(self, at_s: Floats) -> Floats:
        since_s = np.maximum(at_s - self._from_s[:, None], 0.0)
        share = np.exp(-since_s / self._warms_s[:, None])
        rates: Floats = self._after_ppb[:, None] + (self._before_ppb - self._after_ppb)[:, None] * share
        return rates


class SystemClocks:
    """The hosts' CLOCK_REALTIME, and what their kernels say of UTC. All announce the leap second on its day."""

    def __init__(self, plan: Plan, hosts: int, random: np.random.Generator) -> None:
        self._random = random
        self._leap_ns = round(plan.leap_at_s * SECOND_NS)
        self._start_ns = MIDNIGHT_NS - self._leap_ns
        """UTC at the start."""
        self._off_ns = random.normal(0, _UTC_OFF_NS, hosts)
        self.wrong: dict[int, tuple[int, int, float, bool]] = {}
        """Hosts whose time is wrong from one true time to another, in ns: by how much, and whether they know that."""

    def utc_ns(self, true_ns: int) -> int:
        """UTC as POSIX counts: the second before midnight comes twice."""
        return self._start_ns + true_ns - (SECOND_NS if true_ns >= self._leap_ns else 0)

    def plain_ns(self, true_ns: int) -> int:
        """UTC without its leap second."""
        return self._start_ns + true_ns

    def tai_ns(self, true_ns: int) -> int:
        """TAI."""
        return self._start_ns + true_ns + TAI_S * SECOND_NS

    def said(self, host: int, true_ns: int, local_ns: int) -> dict[str, Any]:
        """The fields of a batch that a host's system clock fills."""
        off_ns, error_ns = self._off_ns[host] + self._random.normal(0, _READ_NS), _UTC_ERROR_NS
        since_ns, until_ns, wrong_ns, knows = self.wrong.get(host, (0, 0, 0.0, False))
        if since_ns <= true_ns < until_ns:
            off_ns += wrong_ns
            error_ns = -1 if knows else error_ns
        passed = true_ns >= self._leap_ns
        announces = not passed and true_ns >= self._leap_ns - DAY_S * SECOND_NS
        return {
            "epoch_ns": self.utc_ns(true_ns) + round(off_ns) - local_ns,
            "utc_error_ns": error_ns,
            "tai_offset_s": TAI_S + passed,
            "leap_s": int(announces),
            "leap_utc_ns": MIDNIGHT_NS if announces else 0,
        }


class World:
    """The fleet, its clocks and its network, window by window.

    Parameters:
        plan: what befalls it.
        hosts: how many there are.
        entropies: streams between two neighbours.
        seed: of everything that is drawn here.
    """

    def __init__(self, plan: Plan, hosts: int, entropies: int, seed: int) -> None:
        random = np.random.default_rng((seed, 2))
        self.plan, self.hosts = plan, hosts
        self._random = random
        self._temperature = Temperature(hosts, random)
        self.clocks = Oscillators(hosts, Crystal(swing_ppb=20.0), random, self._temperature)
        fabric = Fabric(load=0.0, nics_per_leaf=_NICS_PER_LEAF, spines=_SPINES)
        self._queues = Queues(fabric, hosts, random)
        probing = Probing(neighbours=hosts - 1, entropies=entropies, window_s=WINDOW_S)
        self._traffic = Traffic(self.clocks, self._queues, probing, Stamping(), random)
        self.system = SystemClocks(plan, hosts, random)
        self.fleet = Fleet(self._traffic, self.system.said)
        self.load = plan.loads[0].share
        self._events = deque(sorted(self._schedule(), key=lambda event: event[0]))
        mesh = self._traffic.mesh
        there = mesh.initiator, mesh.responder
        self._leaves = np.stack([end // _NICS_PER_LEAF for end in there])
        self._spines = [self._queues.spine(*ends, mesh.entropy) for ends in (there, there[::-1])]

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self._traffic.mesh.initiator)

    def window(self, number: int) -> Iterator[tuple[StampBatch, int]]:
        """The batches of a window, each with its true time of publication.

        Ask for the windows in their order, each once.
        """
        now_s = number * WINDOW_S
        # The last window's states are in use during this one, so what befalls a clock meanwhile comes before they are
        # judged.
        self._befall((number + 2) * WINDOW_S)
        load = next(each for each in reversed(self.plan.loads) if each.from_s <= now_s)
        self.load = self._queues.load = load.share
        self._traffic.probing = msgspec.structs.replace(self._traffic.probing, rate_hz=load.pace_hz)
        current = [each for each in self.plan.upsets if each.at_s <= now_s < each.ends_s]
        self._traffic.more_noise_ns[:] = 0.0
        for each in current:
            if each.kind == LIES:
                self._traffic.more_noise_ns[each.host] = each.size
        sent = self._traffic.window(number)
        return self.fleet.window(self._heard(sent, current))

    def _befall(self, until_s: float) -> None:
        """Lets clocks be upset up to a time."""
        while self._events and self._events[0][0] < until_s:
            _, upset, act = self._events.popleft()
            act(upset)

    def _schedule(self) -> Iterator[tuple[float, Upset, Callable[[Upset], None]]]:
        """The upsets of clocks: the time of each, and the call that makes it."""
        for upset in self.plan.upsets:
            match upset.kind:
                case "fan":
                    yield upset.at_s, upset, lambda each: self._temperature.fan(each.host, each.at_s, each.size)
                case "stepped":
                    # The courses take a step within the `STEP_NS` before, in which nobody could call it one yet.
                    yield (
                        upset.at_s,
                        upset,
                        lambda each: self.clocks.step(each.host, _ns(each.at_s) + STEP_NS, each.size),
                    )
                case "suspended":
                    yield upset.at_s, upset, self._set_by_hardware_clock
                    # CLOCK_MONOTONIC_RAW does not count the time.
                    yield upset.ends_s, upset, self._wake
                case "rebooted":
                    # When nobody reads its former time any more, and its next one not yet.
                    yield upset.at_s + _UNREAD_S, upset, self._start
                case "date set":
                    yield upset.at_s, upset, self._set_date

    def _wake(self, upset: Upset) -> None:
        self.clocks.step(upset.host, _ns(upset.ends_s), -upset.lasts_s * SECOND_NS)

    def _set_by_hardware_clock(self, upset: Upset) -> None:
        off_ns = self._random.uniform(-_AWAKE_OFF_NS, _AWAKE_OFF_NS)
        self.system.wrong[upset.host] = _ns(upset.at_s), _ns(upset.ends_s + _AWAKE_WRONG_S), off_ns, False

    def _start(self, upset: Upset) -> None:
        at_ns = _ns(upset.at_s + _UNREAD_S)
        self.clocks.run_to(at_ns + SECOND_NS)
        shown_ns = int(self.clocks.local_ns(np.array([upset.host]), np.array([at_ns]))[0])
        self.clocks.boot_ns[upset.host] += at_ns - _ns(upset.ends_s) - shown_ns + _UPTIME_NS
        self.system.wrong[upset.host] = _ns(upset.at_s), _ns(upset.ends_s + _WITHOUT_UTC_S), 1e6, True

    def _set_date(self, upset: Upset) -> None:
        self.system.wrong[upset.host] = _ns(upset.at_s), _ns(upset.ends_s), upset.size * SECOND_NS, True

    def _heard(self, sent: Sent, current: list[Upset]) -> Sent:
        """The probes of a window that arrived."""
        mesh = self._traffic.mesh
        lost = np.zeros((2, self.streams), np.bool_)
        for upset in current:
            if upset.kind in {"suspended", "rebooted", "cut off"}:
                lost |= (mesh.initiator == upset.host) | (mesh.responder == upset.host)
            elif upset.kind == "uplink lost":
                leaf, spine = divmod(int(upset.at_s * 10) % (self._queues.leaves * _SPINES), _SPINES)
                across = (self._leaves == leaf).any(axis=0) & (self._leaves[0] != self._leaves[1])
                lost |= np.stack([across & (each == spine) for each in self._spines])
        if not lost.any():
            return sent
        return Sent(sent.number, sent.forth.take(~lost[0][sent.forth.row]), sent.back.take(~lost[1][sent.back.row]))


def _ns(at_s: float) -> int:
    return round(at_s * SECOND_NS)


def said_ns(number: int) -> int:
    """The true time at which the states of a window are published."""
    return (number + 1) * WINDOW_NS + WINDOW_NS // 10 + STEP_NS // 2
