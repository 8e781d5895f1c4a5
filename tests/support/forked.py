"""Programs of ours as processes that tests start, forked from one that has imported their libraries.

What this leaves out, that what is imported by a program is all that it needs, is shown where tests start programs by
their names.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import io
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from foliot_lab.services import forker

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPORTED = (
    "foliot.cli", "foliot.bus.one_shot", "foliot.runtime.service", "foliot_agent.service",
    "foliot_agent.install.join", "foliot_agent.install.leave", "foliot_agent.install.plan_command",
    "foliot_agent.control.kernel_backend",
)  # fmt: skip
"""What is imported beforehand; the programs import the rest themselves."""
_TRIAL = "foliot_agent.install.kernel_trial"
# linux/prctl.h, linux/capability.h
_PR_CAPBSET_DROP, _CAPABILITIES, _CAPABILITY_VERSION_3 = 24, 64, 0x20080522


def start(
    module: str, *arguments: str, stdout: int | None = None, stderr: int | None = None,
    env: Mapping[str, str] | None = None,
    privileged: bool = True, constants: Mapping[str, float] | None = None,
) -> forker.Forked:  # fmt: skip
    """Starts ``python -m module`` in the namespace that the calling thread is in.

    Parameters:
        stdout: file descriptor; None: this process's.
        env: all of its environment; None: as here.
        privileged: not so, it has no capability, whoever it runs as.
        constants: of its modules, as ``package.module.NAME``, that have other values in it.
    """
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        return _forker().start(
            module, *arguments, namespace=namespace, stdout=1 if stdout is None else stdout,
            stderr=2 if stderr is None else stderr, env=os.environ if env is None else env,
            more={"privileged": privileged, "constants": dict(constants or {})},
        )  # fmt: skip
    finally:
        os.close(namespace)


async def run(
    module: str, *arguments: str, env: Mapping[str, str] | None = None, privileged: bool = True
) -> tuple[int, str]:
    """Runs ``python -m module`` to its end; the exit status, and all that it said."""
    with tempfile.TemporaryFile() as said:
        process = start(module, *arguments, stdout=said.fileno(), stderr=said.fileno(), env=env, privileged=privileged)
        status = await process.wait()
        said.seek(0)
        return status, said.read().decode()


@functools.cache
def _forker() -> forker.Forker:
    # Python's streams wait as those of a program do whose output goes to a pipe or a file.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    made = forker.Forker(_IMPORTED, env | {"OPENBLAS_NUM_THREADS": "1"}, command=(sys.executable, __file__))
    atexit.register(made.close)
    return made


# -- a program that was forked ----------------------------------------------------------------------------------------


def _prepare(more: Mapping[str, Any]) -> None:
    if not more["privileged"]:
        _drop_capabilities()
    importlib.import_module(_TRIAL).run_trial = _forked_trial
    for name, value in more["constants"].items():
        place, _, constant = name.rpartition(".")
        setattr(importlib.import_module(place), constant, value)


def _drop_capabilities() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, capability)
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")


def _forked_trial() -> dict[str, str]:
    """What `foliot_agent.install.kernel_trial.run_trial` does, in a fork instead of a program of its own."""
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        with os.fdopen(reading) as told:
            text = told.read()
        os.waitpid(pid, 0)
        found: dict[str, str] = json.loads(text)
        return found
    try:
        sys.stdout = io.StringIO()
        importlib.import_module(_TRIAL).main()
        os.write(writing, sys.stdout.getvalue().encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    # Python puts the folder of this file first, which programs of ours do not know.
    del sys.path[0]
    forker.main(_prepare)
