"""The command ``foliot lab`` as a bench starts it, once for each of its runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LAB = (sys.executable, "-u", "-m", "foliot.cli", "lab")
"""The command without its subcommand. Unbuffered, so that its last line is what it said last."""


def finished(command: Sequence[Any], log: Path) -> int:
    """Runs a command to its end, and returns its exit status.

    Parameters:
        log: the file for all that it says.
    """
    with (
        log.open("w") as said,
        # A session of its own: Ctrl-C reaches this process alone, which then ends the command in order.
        subprocess.Popen(
            [*map(str, command)], stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise
