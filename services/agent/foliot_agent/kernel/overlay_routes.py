"""Lists the rules and routes in the kernel that have the agent's form."""

from __future__ import annotations

import errno
import socket
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError

from foliot_agent.core import overlay_layout


async def rules_present(netlink: Any) -> tuple[overlay_layout.Rule, ...]:
    """The rules in the kernel that are of our form."""
    found = []
    async for message in await netlink.rule("dump", family=socket.AF_INET):
        priority, table, address = (message.get_attr(f"FRA_{name}") for name in ("PRIORITY", "TABLE", "DST"))
        ours = priority in {overlay_layout.AWAY_PRIORITY, overlay_layout.ALWAYS_PRIORITY}
        if ours and table in overlay_layout.TABLES and address:
            found.append(overlay_layout.Rule(priority=priority, prefix=f"{address}/{message['dst_len']}", table=table))
    return tuple(found)


async def routes_present(netlink: Any, table: int) -> tuple[tuple[str, str], ...]:
    """Destination and gateway of the routes in one of our tables.

    With a filter of its own, pyroute2 leaves the choice to the kernel where the socket has `strict_check`.
    """

    def is_of_table(message: Any) -> bool:
        return bool(message.get_attr("RTA_TABLE") == table)

    try:
        return tuple(
            [
                (message.get_attr("RTA_DST"), message.get_attr("RTA_GATEWAY") or "")
                async for message in await netlink.route(
                    "dump", family=socket.AF_INET, table=table, dump_filter=is_of_table
                )
            ]
        )
    except NetlinkError as error:
        if error.code == errno.ENOENT:  # no route was ever in it
            return ()
        raise
