"""``python -m foliot_agent`` runs the agent; with ``--uninstall`` it takes away all that any run of it left."""

from __future__ import annotations

import argparse
import asyncio

from foliot.runtime.extensions import extend
from foliot.runtime.service import run, set_up_logs
from foliot_agent.control.actuator_kinds import remove_all
from foliot_agent.kernel.nic_stamping import undo_all
from foliot_agent.service import main

parser = argparse.ArgumentParser(prog="python -m foliot_agent", description="Foliot's node agent")
parser.add_argument(
    "--uninstall",
    action="store_true",
    help="take away its devices, routes and rules, turn off stamps that it turned on, and end",
)

if __name__ == "__main__":
    if parser.parse_args().uninstall:
        set_up_logs()
        extend("agent")
        undo_all()
        asyncio.run(remove_all())
    else:
        run("agent", main)
