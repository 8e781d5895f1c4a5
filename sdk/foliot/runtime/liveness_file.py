"""A service's sign of life: a file that it touches every second. An old or missing file means that something is wrong.

A check needs no more than ``find FILE -newermt '10 seconds ago'``. One that starts an interpreter would cost more than the service.
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
    """Touches the file for as long as the work inside goes on, and takes it away at the end.

    Parameters:
        file: empty: nothing is touched.
        connected: whether the bus answers.

    Raises:
        SettingsError: the file cannot be written.
    """
    if not file:
        yield
        return
    path = Path(file)
    beat(path, connected())
    task = asyncio.get_running_loop().create_task(_beat_on(path, connected))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        _forget(path)


def beat(path: Path, is_connected: bool) -> None:
    """Touches the file, unless the bus is away.

    Raises:
        SettingsError: it cannot be written.
    """
    if not is_connected:
        return
    try:
        path.touch()
    except OSError as error:
        raise SettingsError(f"health.file: {path} cannot be written: {error.strerror}") from error


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


async def _beat_on(path: Path, connected: Callable[[], bool]) -> None:
    while True:
        await asyncio.sleep(_BEAT_S)
        with contextlib.suppress(SettingsError):  # a full disk, say: the file grows old, and so shows the trouble
            beat(path, connected())
