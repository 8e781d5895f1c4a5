"""Numbers for streams by path, which index what is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot_sync.core.clock_numbers import ClockNumbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_schemas.observation import StampBatch, StreamList
    from foliot_sync.core.arrays import Ints


class StreamNumbers:
    """The numbers of paths, in the order in which they first came."""

    def __init__(self) -> None:
        self._numbers = ClockNumbers()
        self._last: dict[StreamList, Ints] = {}
        """Of the last window's lists of streams: nodes mostly have the same again, and no path is looked up then."""

    def __len__(self) -> int:
        """The number of paths."""
        return len(self._numbers)

    def of(self, batches: Iterable[StampBatch]) -> Ints:
        """The number of each stream of these batches, which are all of a window; new ones get the next."""
        found = [np.zeros(0, np.int64)]
        last, self._last = self._last, {}
        for batch in batches:
            listed = batch.stream_list()
            numbers = last.get(listed)
            if numbers is None:
                numbers = np.fromiter(map(self._numbers.__getitem__, listed.paths), np.int64, len(listed.paths))
            self._last[listed] = numbers
            found.append(numbers)
        return np.concatenate(found)

    def paths(self, first: int) -> list[str]:
        """The paths by number, from this one on."""
        return list(self._numbers)[first:]
