"""Programs that use PyTorch as processes that tests start, forked from one that has imported it.

That takes each of them seconds of processor time, and a job has several. `foliot.torch` they import themselves.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foliot_lab.services import forker

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPORTED = ("torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "torch._dynamo")
"""PyTorch itself imports the last one for a process's first optimizer."""


def start(
    program: Path | str, *arguments: str, env: Mapping[str, str], stderr: int, stdout: int | None = None
) -> forker.Forked:
    """Starts ``python script`` or ``python -m module``. Call it where an event loop runs.

    Parameters:
        program: a script's file or a module's name.
        env: all of its environment.
        stderr: file descriptor.
        stdout: file descriptor; None: that of `stderr`.
    """
    module, folder = (program.stem, str(program.parent)) if isinstance(program, Path) else (program, "")
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        return _forker().start(
            module, *arguments, namespace=namespace, stdout=stderr if stdout is None else stdout, stderr=stderr, env=env,
            more={"folder": folder},
        )  # fmt: skip
    finally:
        os.close(namespace)


@functools.cache
def _forker() -> forker.Forker:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    made = forker.Forker(_IMPORTED, env, command=(sys.executable, __file__))
    atexit.register(made.close)
    return made


def _prepare(more: Mapping[str, Any]) -> None:
    if more["folder"]:
        sys.path.insert(0, more["folder"])


if __name__ == "__main__":
    # Python puts the folder of this file first, which scripts do not know.
    del sys.path[0]
    forker.main(_prepare)
