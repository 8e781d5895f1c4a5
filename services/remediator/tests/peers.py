"""Who has to do with a lost NIC of node3, and what each of them was told."""

from __future__ import annotations

PEERS = ("node0", "node1", "node2")


def by_node(commands):
    """Commands by node; each node has one."""
    assert len({command.node for command in commands}) == len(commands)
    return {command.node: command for command in commands}
