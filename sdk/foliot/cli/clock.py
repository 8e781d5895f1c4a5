"""``foliot clock``: the time of this node, and how far to trust it."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from foliot.cli import settings_options
from foliot.cli.colours import GREEN, RED, YELLOW, paint, wanted
from foliot.clock.page import ClockUnknown
from foliot.clock.reader import Reader
from foliot.settings import SettingsError
from foliot.text.messages import duration

if TYPE_CHECKING:
    from foliot.clock.reader import Reading
    from foliot_schemas import ClockState

_SECOND_NS = 1_000_000_000
_FAR_NS = 1 << 62
_FOLLOWS = {
    "free": "all clocks of the fleet, and not UTC",
    "nodes": "the rates of chosen nodes, and not UTC",
    "utc": "UTC but for leap seconds, as chosen nodes have it",
    "tai": "TAI, as chosen nodes have it",
}
_CONTRADICTIONS = {
    "offset": "another offset from TAI",
    "leap": "another leap second, or none",
    "both": "another offset from TAI, and another leap second or none",
}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "clock",
        help="show this node's time, and how far to trust it",
        description="Shows the common time as this node knows it, from the page that its probe writes; "
        "the bus is not asked. "
        "The exit status is 0 if the time is to be trusted, else 1.",
        epilog="Examples: foliot clock · foliot clock --watch · foliot clock --wait 60 --within 1000 && start-the-job. "
        "All clocks of the fleet: foliot watch clocks --no-follow",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_positive,
        const=1.0,
        metavar="SECONDS",
        help="again and again, each second or as said, until interrupted",
    )
    parser.add_argument(
        "--wait", type=_positive, metavar="SECONDS", help="wait so long at most for a time to be trusted"
    )
    parser.add_argument("--within", type=_positive, metavar="NS", help="the statistical bound may be no wider")
    parser.add_argument("--page", default="", metavar="FILE", help="the page (default: [clock] page of the settings)")
    settings_options.add_config(parser)
    parser.set_defaults(func=_clock)


def _clock(arguments: argparse.Namespace) -> int:
    settings_options.take_config(arguments)
    reader = Reader(arguments.page)
    try:
        if arguments.wait is not None:
            _await(reader, arguments)
        while True:
            reading = reader.read()
            sys.stdout.write(
                (json.dumps(_plain(reading)) if arguments.json else _words(reading, colour=wanted())) + "\n"
            )
            sys.stdout.flush()
            if arguments.watch is None:
                break
            time.sleep(arguments.watch)
    except SettingsError as error:
        sys.stderr.write(f"foliot clock: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0 if _is_good(reading, arguments.within) else 1


def _await(reader: Reader, arguments: argparse.Namespace) -> None:
    try:
        reader.wait(arguments.wait, within_ns=math.floor(arguments.within) if arguments.within else None)
    except ClockUnknown as unknown:
        sys.stderr.write(f"foliot clock: not within {arguments.wait:g} s: {unknown}\n")


def _is_good(reading: Reading, within_ns: float | None) -> bool:
    state = reading.state
    return reading.trusted and state is not None and (not within_ns or state.bound_at_ns(reading.local_ns) <= within_ns)


def _plain(reading: Reading) -> dict[str, Any]:
    """Fields for a program: the state as sync published it, and the time by it now."""
    found: dict[str, Any] = {
        "clock": reading.clock,
        "trusted": reading.trusted,
        "why": reading.why,
        "sentence": reading.sentence,
    }
    state = reading.state
    if state is None:
        return found
    at_ns, bound_ns, hard_ns = _now(state, reading.local_ns)
    found |= {"status": state.status, "reference": state.reference, "timescale": state.timescale}
    if reading.trusted:
        found |= {
            "at_ns": at_ns,
            "earliest_ns": at_ns - bound_ns,
            "latest_ns": at_ns + bound_ns,
            "bound_ns": bound_ns,
            "hard_bound_ns": hard_ns,
        }
        if state.utc_offset_error_ns >= 0:
            found["utc_ns"] = state.utc_ns(at_ns)
    return found | {
        "utc_offset_s": state.utc_offset_s,
        "tai_offset_s": state.tai_offset_s,
        "leap_s": state.leap_s,
        "leap_at_ns": state.leap_at_ns,
        "utc_offset_error_ns": state.utc_offset_error_ns,
        "utc_disagreement": state.utc_disagreement,
        "offset_ns": at_ns - reading.local_ns,
        "drift_ppb": state.drift_ppb,
        "local_ns": reading.local_ns,
        "age_ns": reading.local_ns - state.as_of_ns,
        "void_after_ns": state.void_after_ns,
        "window": state.window,
        "stamp_noise_ns": state.stamp_noise_ns,
        "rate_wander_ppb": state.rate_wander_ppb,
    }


def _now(state: ClockState, local_ns: int) -> tuple[int, int, int | None]:
    """Reference time, statistical and hard bound."""
    hard_ns = state.hard_bound_at_ns(local_ns)
    known = 0 <= state.hard_bound_ns < _FAR_NS and hard_ns < _FAR_NS
    return state.reference_ns(local_ns), state.bound_at_ns(local_ns), hard_ns if known else None


def _words(reading: Reading, *, colour: bool) -> str:
    """Lines for a person."""
    state = reading.state
    if state is None:
        return paint(reading.sentence, RED, colour)
    at_ns, bound_ns, hard_ns = _now(state, reading.local_ns)
    age_s, left_s = (
        each * 1e-9 for each in (reading.local_ns - state.as_of_ns, state.void_after_ns - reading.local_ns)
    )
    status = paint(
        state.status, (GREEN if state.status == "synchronised" else YELLOW) if reading.trusted else RED, colour
    )
    lines = [f"{reading.clock}  {status}" + (f": {reading.sentence}" if reading.why else "")]
    if reading.trusted:
        hard = f", ± {duration(hard_ns)} whatever the paths' asymmetry" if hard_ns is not None else ""
        lines += [f"  time       {_date(at_ns)} ± {duration(bound_ns)}{hard}", *_utc_lines(state, at_ns)]
    lines += [
        f"  follows    {_FOLLOWS[state.timescale]}",
        (
            f"  drift      this clock runs {abs(state.drift_ppb) / 1_000:.3f} ppm too "
            f"{'slow' if state.drift_ppb > 0 else 'fast'}"
        ),
        f"  said       {age_s:.1f} s ago (window {state.window}), "
        + (f"void in {left_s:.1f} s" if left_s > 0 else f"void since {-left_s:.1f} s ago"),
        f"  reference  {state.reference or 'none'}",
    ]
    if state.stamp_noise_ns > 0:
        lines += [f"  noise      stamps repeat to {state.stamp_noise_ns:.0f} ns, as sync measures them"]
    if state.rate_wander_ppb > 0:
        lines += [f"  wander     {state.rate_wander_ppb:.1f} ppb/√s against the reference"]
    return "\n".join(lines)


def _utc_lines(state: ClockState, at_ns: int) -> list[str]:
    """The lines about UTC and TAI at this common time."""
    lines = []
    if state.utc_offset_error_ns >= 0:
        date, within = _date(state.utc_ns(at_ns)), duration(state.utc_offset_error_ns)
        if state.leap_s > 0 and state.leap_at_ns <= at_ns < state.leap_at_ns + _SECOND_NS:
            date = date.replace(":59.", ":60.")  # which POSIX counts as the second before it
        lines += [f"  UTC        {date} ± {within}, {state.utc_offset_at_s(at_ns)} s behind the time"]
    if state.tai_offset_s:
        lines += [f"  TAI        {state.tai_offset_at_s(at_ns)} s ahead of UTC, as the reference's kernel has it"]
    if state.leap_s:
        day = _date(state.leap_at_ns - state.utc_offset_s * _SECOND_NS - _SECOND_NS).split()[0]
        what = "inserted" if state.leap_s > 0 else "deleted"
        left_ns = state.leap_at_ns - at_ns
        when = f"is {what} in {duration(left_ns)}" if left_ns > 0 else f"was {what} {duration(-left_ns)} ago"
        lines += [f"  leap       a second {when}, at the end of {day} (UTC)"]
    if state.utc_disagreement != "none":
        lines += [f"  kernel     this host's has {_CONTRADICTIONS[state.utc_disagreement]}"]
    return lines


def _date(at_ns: int) -> str:
    seconds, nanoseconds = divmod(at_ns, _SECOND_NS)
    try:
        date = dt.datetime.fromtimestamp(seconds, dt.UTC)
    except (ValueError, OverflowError):
        return f"{at_ns} ns"
    return f"{date:%Y-%m-%d %H:%M:%S}.{nanoseconds:09d}"


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value
