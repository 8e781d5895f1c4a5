"""A person's wish that no rank of a training job runs on a node."""

from __future__ import annotations

import msgspec

from foliot_schemas.bounds import Name, Text, Time, check_name


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag="drain.v1", gc=False):
    """A node that is to be left by ranks that can be replaced: bucket `drains`, key: node. Without a value, it is not."""

    node: Name
    """The node."""
    at_ns: Time
    """When it was asked for, by the clock of who did."""
    by: Text = ""
    """Who asked for it."""
    reason: Text = ""
    """Why, in words."""
    over: bool = False
    """Whether the node is to be used again."""

    def check(self) -> None:
        """Refuses a name that could be taken for something else.

        Raises:
            ValueError: it is so.
        """
        check_name(self.node)
