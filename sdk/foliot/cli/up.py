"""``foliot up``: NATS and all services on this machine, kept running until interrupted."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import asyncio
import signal
import sys
import tomllib
from pathlib import Path

from foliot.cli import settings_options
from foliot.runtime.service import set_up_logs
from foliot.runtime.supervisor import LAST, ProcessSpec, Supervisor, nats_server, service

CENTRAL = ("gateway", "sync", "detector", "remediator")
ON_A_NODE = ("agent", "probe")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("up", help="run NATS and the services on this machine")
    settings_options.add_config(parser)
    parser.add_argument(
        "--store", default="run/nats", help="directory of the embedded NATS server (default: %(default)s)"
    )
    parser.add_argument(
        "--no-nats", action="store_true", help="NATS runs elsewhere: [bus] url in the settings says where"
    )
    parser.set_defaults(func=_up)


def _up(arguments: argparse.Namespace) -> int:
    set_up_logs()
    settings_options.take_config(arguments)
    asyncio.run(_run(_specs(arguments)))
    return 0


def _specs(arguments: argparse.Namespace) -> list[ProcessSpec]:
    """NATS first, then the services that need it; probe and agent only if the settings say that this is a node."""
    specs = [] if arguments.no_nats else [nats_server(arguments.store)]
    names = list(CENTRAL)
    if arguments.config and "node" in tomllib.loads(Path(arguments.config).read_text()):
        names += ON_A_NODE
    return specs + [service(name) for name in names]


async def _run(specs: list[ProcessSpec]) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    supervisor = Supervisor()
    try:
        for spec in specs:
            await supervisor.start(spec)
        sys.stdout.write(f"running: {', '.join(supervisor.names())}; interrupt to stop\n")
        await stopped.wait()
    finally:
        await supervisor.stop(LAST)
