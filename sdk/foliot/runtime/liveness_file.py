"""A service's sign of life: a file that it touches every second. An old or missing file means that something is wrong.

A check needs no more than ``find FILE -newermt '10 seconds ago'``. One that starts an interpreter would cost more than
the service.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from foliot.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_BEAT_S = 1.0


@contextlib.asynccontextmanager
async def beating(file: str, connected: Callable[[], bool]) -> AsyncIterator[None]:
    """Touches the file, if one is named, while the bus answers and the work inside goes on.

    It takes the file away at the end.

    Raises:
        SettingsError: the file cannot be written.
    """
    if not file:
        yield
        return
    path = Path(file)

    def beat() -> None:
        if connected():
            path.touch()

    async def beat_on() -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            with contextlib.suppress(OSError):  # a full disk, say: the file grows old, and so shows the trouble
                beat()

    try:
        beat()
    except OSError as error:
        raise SettingsError(f"health.file: {path} cannot be written: {error.strerror}") from error
    task = asyncio.get_running_loop().create_task(beat_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - nothing waits any more
