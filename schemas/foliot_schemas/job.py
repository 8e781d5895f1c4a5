"""A training job, as the one who starts it registers it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.bounds import LongName, Name, Time, check_name
from foliot_schemas.names import node_of, rail_of

FOUND = "found:"
"""How the names of jobs begin that nobody has registered. The rest is the first of their nodes, by name."""
MOST_NICS = 1 << 14
"""NICs of a job, at most. Their names fill less than the megabyte that NATS takes by default."""
_MOST_PRIORITY = 1_000

Priority = Annotated[int, msgspec.Meta(ge=-_MOST_PRIORITY, le=_MOST_PRIORITY)]


class Job(msgspec.Struct, frozen=True, kw_only=True, tag="job.v1", gc=False):
    """A registered job, and the NICs that are its own: bucket `jobs`, key: job.

    Who registers it writes it again while it lives. A job that is not written again for a minute is over.
    """

    name: Name
    """The job's."""
    nics: Annotated[tuple[LongName, ...], msgspec.Meta(max_length=MOST_NICS)]
    """Its NICs, by name. Traffic between two of their service addresses is the job's, whichever way it goes."""
    priority: Priority = 0
    """The higher, the more it matters."""
    since_ns: Time = 0
    """When it was registered first, by the clock of who did. Of two jobs that name one NIC, the earlier has it."""

    def check(self) -> None:
        """Refuses a job with a name that could be taken for something else, or with a NIC that is none or is there twice.

        Raises:
            ValueError: it is so.
        """
        check_name(self.name)
        if self.name.startswith(FOUND):
            raise ValueError(f"{self.name[:64]!r} is the name of a job that nobody has registered")
        for nic in self.nics:
            check_name(nic)
            if not node_of(nic) or not rail_of(nic):
                raise ValueError(f"{nic[:64]!r} is no NIC")
        if len({*self.nics}) != len(self.nics):
            raise ValueError(f"{self.name} names a NIC twice")
