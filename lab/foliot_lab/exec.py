"""The command ``foliot lab exec node3 -- ip route``: runs a program in a running lab's namespace."""

from __future__ import annotations

import json
import os
from pathlib import Path

from foliot_lab.fabric.namespaces import CLONE_NEWUSER, Namespace, enter, set_namespace


def execute(folder: Path, place: str, command: list[str]) -> None:
    """Replaces this process by the command, in the namespace of a host or ``control``.

    Raises:
        LookupError: no lab runs in this folder, or it has no such place.
        OSError: the command cannot be started, or the lab belongs to somebody else.
    """
    try:
        running = json.loads((folder / "namespaces.json").read_text())
    except OSError as error:
        raise LookupError(f"no lab has run in {folder}") from error
    process = Path(f"/proc/{running['pid']}")
    if not process.exists():
        raise LookupError(f"the lab in {folder} has ended")
    if place not in running["descriptors"]:
        raise LookupError(f"no {place!r} in this lab; there are {', '.join(running['descriptors'])}")
    network = os.open(process / "fd" / str(running["descriptors"][place]), os.O_RDONLY)
    if (process / "ns/user").readlink() != Path("/proc/self/ns/user").readlink():
        set_namespace(os.open(process / "ns/user", os.O_RDONLY), CLONE_NEWUSER, "joining the lab's user namespace")
    enter(Namespace(place, network))
    os.execvp(command[0], command)  # noqa: S606 - that is what it is for
