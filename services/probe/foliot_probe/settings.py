"""``[probe]``: the rates of probing, and the times after which silence is reported."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

Rate = Annotated[float, msgspec.Meta(ge=0.1, le=100.0)]
"""At most what lets a stream remember a second's probes of both members of its coded pairs many times over."""


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[probe]`` of the settings; the bench `probe-cost` measures what they cost."""

    removed: ClassVar[frozenset[str]] = frozenset(
        {
            "mesh_neighbours", "mesh_streams", "coded_every", "silence_intervals", "silence_grace_ms", "stall_ms", "tolerated",
        }
    )  # fmt: skip

    in_use_hz: Rate = 25.0
    """Probes a second on paths in use and their backups: three missing ones are 120 ms, which leaves half of 250 ms for the move."""
    sweep_hz: Rate = 5.0
    """On all other paths. Slower, and a path that traffic could be moved to would be known to be healthy too late."""
    mesh_least_hz: Rate = 3.125
    """Coded pairs a second on each of these in a quiet network: in simulations as good as 25; with half as many the next layer of points is missing."""
    mesh_most_hz: Rate = 25.0
    """The highest rate, in a loaded network and until a clock has settled. Where one probe in a hundred meets no queue, a window of 50
    pairs still holds one or two."""
    accuracy_ns: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    """How far apart the least delays of a window may lie. 0, and whatever is less: as far as stamps of their kind repeat, since more probes tell no more."""
    tick_ms: Annotated[int, msgspec.Meta(ge=5, le=100)] = 40
    """The sockets are read and the probes sent in batches this often; rates are rounded to whole ticks. The kernel's stamps say
    when each packet really came, so that a coarse tick blurs nothing; it only costs less."""
    full_every: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 4
    """In every so many rounds a path's probe is padded to full size, so that a link is found that passes only smaller packets. Of a path in use that is
    six a second, 75 kb/s at an MTU of 1,500; of others one, 15 kb/s. 0: never."""
    delay_interval_ms: Annotated[int, msgspec.Meta(ge=20, le=10_000)] = 100
    """How often delays and counts are published."""
    window_s: Annotated[float, msgspec.Meta(ge=0.2, le=60.0)] = 2.0
    """How often stamps are published: the window of Huygens (NSDI '18)."""
    chrony_shm: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    """Unit of chrony's ``refclock SHM`` that gets the reference time, once a second; left out: none. See docs/clock.md before."""
