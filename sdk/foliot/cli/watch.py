"""``foliot watch``: what travels on the bus, decoded, a line per message."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import re
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

from foliot.bus.observer import NoBusError, Observer
from foliot.cli import settings_options
from foliot.cli.colours import wanted
from foliot.cli.message_lines import in_json, in_text
from foliot.cli.subject_patterns import PatternError, Target, target
from foliot.runtime.extensions import extend
from foliot.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from foliot.bus.observer import Heard
    from foliot.settings import BusSettings

_USUAL = ("event", "command", "outcome")
_WITHIN_S = 5.0
"""Time to wait for the bus with ``--no-follow``: a script is meant to end."""
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "watch",
        help="show what travels on the bus, decoded",
        description="Shows what travels on the bus, a line per message, until interrupted. It only listens.",
        epilog="Examples: foliot watch · foliot watch 'event.>' --since 10m · foliot watch event.flap.node3.rail0 · "
        "foliot watch clock.node3 --json · foliot watch inventory",
    )
    parser.add_argument(
        "pattern", nargs="*", default=_USUAL,
        help="a subject below foliot.v1., with * and >, or a bucket, or the beginning of one "
        "(default: event command outcome)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    past = parser.add_mutually_exclusive_group()
    past.add_argument(
        "--since", type=_seconds, metavar="AGE", help="first what streams kept since then: 90s, 10m, 6h, 2d"
    )
    past.add_argument("--last", type=_positive, metavar="N", help="first the newest N that streams kept")
    parser.add_argument("--count", type=_positive, metavar="N", help="end after N messages")
    parser.add_argument(
        "--no-follow",
        action="store_true",
        help="end after what was kept: do not wait for more, nor for a bus that is away",
    )
    settings_options.add_bus(parser, role="reader")
    parser.set_defaults(func=_watch)


def _watch(arguments: argparse.Namespace) -> int:
    # asyncio warns whenever a TLS connection of nats-py's ends; nothing is wrong then.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        targets = tuple(dict.fromkeys(target(pattern) for pattern in arguments.pattern))
        settings = settings_options.bus_settings(arguments)
        extend("cli")
        asyncio.run(_until_nobody_reads(_print(arguments, settings, targets)))
    except (PatternError, SettingsError, NoBusError) as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


async def _until_nobody_reads(work: Coroutine[Any, Any, None]) -> None:
    """Does the work; raises `BrokenPipeError` when the reader of standard output goes, also with nothing to write."""
    task = asyncio.ensure_future(work)
    output = sys.stdout.fileno()
    if not stat.S_ISFIFO(os.fstat(output).st_mode):
        await task
        return
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    # The writing end of a pipe is never readable; epoll wakes a reader of it for the error alone.
    loop.add_reader(output, gone.set)
    leaving = asyncio.ensure_future(gone.wait())
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(output)
        leaving.cancel()
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
    if gone.is_set():
        raise BrokenPipeError
    if isinstance(ended[0], BaseException):
        raise ended[0]


async def _print(arguments: argparse.Namespace, settings: BusSettings, targets: tuple[Target, ...]) -> None:
    colour = wanted()
    left = arguments.count
    within_s = _WITHIN_S if arguments.no_follow else None
    listener = await Observer.connect(settings, _say, time.time_ns, within_s)
    try:
        async with contextlib.aclosing(_messages(listener, arguments, targets)) as messages:
            async for heard in messages:
                sys.stdout.write((in_json(heard) if arguments.json else in_text(heard, colour=colour)) + "\n")
                sys.stdout.flush()
                left = left and left - 1
                if left == 0:
                    return
    finally:
        await listener.close()


async def _messages(
    listener: Observer, arguments: argparse.Namespace, targets: tuple[Target, ...]
) -> AsyncGenerator[Heard, None]:
    """First the present and the kept messages, then those that come."""
    await listener.subscribe(each.subject for each in targets)
    if not arguments.no_follow:  # a quiet bus is no hang
        _say(f"listening at {listener.place} to {', '.join(each.subject for each in targets)}")
    for each in await _past(listener, arguments, targets):
        yield each
    if not arguments.no_follow:
        kept = [(stream, each.subject) for each in targets for stream in each.streams]
        async with contextlib.aclosing(listener.heard(kept)) as coming:
            async for each in coming:
                yield each


async def _past(listener: Observer, arguments: argparse.Namespace, targets: tuple[Target, ...]) -> list[Heard]:
    present = [each for it in targets if it.bucket for each in await listener.present(it.bucket, it.subject)]
    kept: list[Heard] = []
    for it in targets:
        for stream in it.streams:
            if arguments.since:
                kept += await listener.since(stream, it.subject, arguments.since)
            elif arguments.last:
                kept += await listener.last(stream, it.subject, arguments.last)
        if (arguments.since or arguments.last) and not (it.streams or it.bucket):
            _say(f"{it.subject} is not kept by any stream: there is nothing to show of the past")
    new = listener.note(kept)
    return present + (new[-arguments.last :] if arguments.last else new)


def _say(sentence: str) -> None:
    sys.stderr.write(f"foliot watch: {sentence}\n")
    sys.stderr.flush()


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"expected an age such as 90s, 10m, 6h or 2d, got {text!r}")
    return float(match[1]) * _UNITS_S[match[2]]


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return int(text)
