"""``foliot job``: registers a job and its NICs for as long as its command runs, or for a while."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from nats.js.errors import NotFoundError

from foliot.bus.one_shot import OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.cli import settings_options
from foliot.settings import SettingsError
from foliot_schemas import Job, WireError, decode, encode
from foliot_schemas.subjects import INVENTORY, JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from foliot.settings import BusSettings
    from foliot_schemas import Node

_RENEWED_EACH_S = JOBS.keep_s / 4
"""Three renewals may fail before a job that lives counts as over."""
_LEAVING_S = 2.0
"""How long a command's end waits for the bus. A job that is not taken out is over within a minute."""
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_NOT_FOUND, _NOT_STARTED, _BY_SIGNAL = 127, 126, 128
"""Exit statuses of a command that is not there, that cannot be run, and that a signal ended (sh(1))."""


class JobError(Exception):
    """The job cannot be registered as it was asked for; the message says why."""


class Wish(NamedTuple):
    """What is to be registered."""

    name: str
    nodes: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    """Of these nodes; none: all that they have."""
    addresses: tuple[str, ...] = ()
    """Service addresses, in place of nodes."""
    priority: int = 0


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "job",
        help="register a job while its command runs",
        usage="foliot job (--nodes N,N [--rails R,R] | --addresses A,A) [options] NAME (--for AGE | -- COMMAND ...)",
        description="Tells Foliot that traffic between these NICs is a job's, so that events and `foliot why` name it. "
        "The job is registered while its command runs, or for a while, and for a minute after this process dies. "
        "The command runs whether or not the job can be registered, with the name in $FOLIOT_JOB; the exit status is "
        "its own.",
        epilog="Examples: foliot job --nodes node0,node1 pretrain-7 -- torchrun train.py · "
        "foliot job --nodes node0,node1 --rails rail0 --priority 5 --for 2h pretrain-7",
    )
    parser.add_argument("name", help="name of the job")
    parser.add_argument("command", nargs="*", help="the command that is the job, behind --")
    members = parser.add_mutually_exclusive_group(required=True)
    members.add_argument("--nodes", type=_names, default=(), metavar="N,N", help="its nodes")
    members.add_argument("--addresses", type=_names, default=(), metavar="A,A", help="its service addresses")
    parser.add_argument(
        "--rails", type=_names, default=(), metavar="R,R", help="its rails on these nodes (default: all)"
    )
    parser.add_argument(
        "--priority", type=int, default=0, metavar="N", help="the higher, the more it matters (default: 0)"
    )
    parser.add_argument("--for", dest="for_s", type=_seconds, metavar="AGE", help="for so long: 90s, 10m, 2h, 1d")
    settings_options.add_bus(parser, role="scheduler")
    parser.set_defaults(func=_job)


def _job(arguments: argparse.Namespace) -> int:
    if bool(arguments.command) == (arguments.for_s is not None):
        _say("give either --for AGE or -- COMMAND")
        return 2
    wish = Wish(arguments.name, arguments.nodes, arguments.rails, arguments.addresses, arguments.priority)
    try:
        settings = settings_options.bus_settings(arguments)
        registration = Registration(settings, wish)
        if arguments.command:
            return asyncio.run(_beside(registration, arguments.command, arguments.name))
        asyncio.run(_for(registration, arguments.for_s))
    except (SettingsError, JobError) as error:
        _say(str(error))
        return 2
    except BUS_ERRORS as error:
        _say(f"the bus does not answer: {in_words(error)}")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


async def _for(registration: Registration, for_s: float) -> None:
    await registration.write()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(for_s):
            await registration.keep()
    await registration.end()


async def _beside(registration: Registration, command: list[str], name: str) -> int:
    """Runs the command, and keeps the job registered meanwhile. Returns the command's exit status.

    The command finds the job's name in its environment, as `foliot.torch` does.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "FOLIOT_JOB": name})
    except FileNotFoundError:
        _say(f"there is no command {command[0]}")
        return _NOT_FOUND
    except OSError as error:
        _say(f"{command[0]}: {error.strerror}")
        return _NOT_STARTED
    loop = asyncio.get_running_loop()
    # A terminal interrupts the command as well, which decides by itself what that means.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _passed_on(process, number))
    keeping = asyncio.ensure_future(registration.keep())
    status = await process.wait()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    with contextlib.suppress(*BUS_ERRORS):
        async with asyncio.timeout(_LEAVING_S):
            await registration.end()
    return status if status >= 0 else _BY_SIGNAL - status


def _passed_on(process: asyncio.subprocess.Process, number: signal.Signals) -> Callable[[], None]:
    def pass_on() -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    return pass_on


class Registration:
    """A job in the bucket `jobs`, which is written again while it lives. Each writing is a connection of its own."""

    def __init__(self, settings: BusSettings, wish: Wish) -> None:
        self._settings = settings
        self._wish = wish
        self._job: Job | None = None
        self._said = ""

    async def keep(self) -> None:
        """Writes the job again and again until cancelled. What forbids it is said once, and tried again."""
        while True:
            try:
                await self.write()
            except JobError as error:
                self._tell(str(error))
            except BUS_ERRORS as error:
                self._tell(f"the bus does not answer: {in_words(error)}")
            else:
                self._said = ""
            await asyncio.sleep(_RENEWED_EACH_S)

    async def write(self) -> None:
        """Writes the job once.

        Raises:
            JobError: it cannot be registered as it was asked for.
            nats.errors.Error, OSError, TimeoutError: the bus did not answer.
        """
        async with OneShot(self._settings, role="scheduler") as bus:
            present = await bus.present(JOBS)
            made = self._job or Job(
                name=self._wish.name, nics=nics_of(self._wish, await bus.present(INVENTORY)),
                priority=self._wish.priority, since_ns=time.time_ns(),
            )  # fmt: skip
            job = admitted(made, present)
            try:
                await bus.put(JOBS, job.name, job)
            except NotFoundError:
                raise JobError("the bus has no bucket jobs yet: the central services make it") from None
        self._job = job

    async def end(self) -> None:
        """Takes the job out, if it was registered.

        Raises:
            nats.errors.Error, OSError, TimeoutError: the bus did not answer.
        """
        if self._job is not None:
            async with OneShot(self._settings, role="scheduler") as bus:
                await bus.delete(JOBS, self._job.name)

    def _tell(self, trouble: str) -> None:
        if trouble != self._said:
            self._said = trouble
            _say(f"the job is not registered: {trouble}")


def nics_of(wish: Wish, inventory: Mapping[str, Node]) -> tuple[str, ...]:
    """The NICs that a wish is about, by name.

    Raises:
        JobError: the fleet has none of a node, rail or address that it names.
    """
    if wish.addresses:
        by_address = {nic.service_address: nic.name for node in inventory.values() for nic in node.nics}
        if strangers := [address for address in wish.addresses if address not in by_address]:
            raise JobError(f"{strangers[0]} is no service address of the fleet")
        return tuple(sorted({by_address[address] for address in wish.addresses}))
    if strangers := [node for node in wish.nodes if node not in inventory]:
        raise JobError(f"the fleet has no node {strangers[0]}")
    nics = [nic for node in wish.nodes for nic in inventory[node].nics]
    if strangers := [rail for rail in wish.rails if rail not in {nic.rail for nic in nics}]:
        raise JobError(f"none of these nodes has a NIC on {strangers[0]}")
    return tuple(sorted({nic.name for nic in nics if not wish.rails or nic.rail in wish.rails}))


def admitted(job: Job, present: Mapping[str, Job]) -> Job:
    """The job as it may be registered beside others: it is as old as an earlier registration of the same.

    Raises:
        JobError: it may not.
    """
    try:
        decode(encode(job), Job)
    except WireError as error:
        raise JobError(str(error)) from None
    for other in present.values():
        if other.name == job.name:
            if other.nics != job.nics:
                raise JobError(f"there is a job {job.name} with other NICs")
            job = msgspec.structs.replace(job, since_ns=min(job.since_ns, other.since_ns))
        elif shared := {*job.nics} & {*other.nics}:
            raise JobError(f"{min(shared)} is of the job {other.name}")
    return job


def _names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    if not names:
        raise argparse.ArgumentTypeError("expected names with commas between")
    return names


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_S or not number.isdecimal() or not int(number):
        raise argparse.ArgumentTypeError(f"expected 90s, 10m, 2h or 1d, got {text!r}")
    return int(number) * _UNITS_S[unit]


def _say(sentence: str) -> None:
    sys.stderr.write(f"foliot job: {sentence}\n")
