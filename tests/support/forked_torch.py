"""Scripts that use PyTorch as processes that tests start, forked from one that has imported it.

That takes each of them two seconds of processor time, and a job has several. `foliot.torch` they import themselves.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

from foliot_lab.services import forker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_IMPORTED = ("torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data")


def start(script: Path, *arguments: str, env: Mapping[str, str], stderr: int) -> forker.Forked:
    """Starts ``python script``. Call it where an event loop runs.

    Parameters:
        env: all of its environment.
        stderr: file descriptor.
    """
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        return _forker().start(
            script.stem, *arguments, namespace=namespace, stdout=stderr, stderr=stderr, env=env,
            more={"folder": str(script.parent)},
        )  # fmt: skip
    finally:
        os.close(namespace)


@functools.cache
def _forker() -> forker.Forker:
    made = forker.Forker(_IMPORTED, os.environ, command=(sys.executable, __file__))
    atexit.register(made.close)
    return made


def _prepare(more: Mapping[str, Any]) -> None:
    sys.path.insert(0, more["folder"])


if __name__ == "__main__":
    # Python puts the folder of this file first, which scripts do not know.
    del sys.path[0]
    forker.main(_prepare)
