"""The name of a fault, and the trace id that all its witnesses derive from it.

The first to see a fault may be the probe, the agent or a peer. Each derives the same trace id and the same root span id
from the kernel's message. So one trace holds the whole fault, and no witness has to ask another.
"""

from __future__ import annotations

import hashlib


def port_fault(boot: str, nic: str, carrier_down_count: int, index: int = 0) -> str:
    """The name of a loss of carrier; its return belongs to the same fault.

    A device that a driver made anew counts from 0 again. So its index is part of the name where it is known.
    """
    device = f"device-{index}/" if index else ""
    return f"{boot}/{nic}/{device}carrier-{carrier_down_count}"


def path_fault(path: str, since_ns: int) -> str:
    """The name of a silence of a path."""
    return f"{path}/silent-{since_ns}"


def trace_id(fault: str) -> int:
    """The 128-bit trace id of a fault; never 0, which W3C Trace Context forbids."""
    return int.from_bytes(hashlib.blake2b(fault.encode(), digest_size=16, person=b"foliot-trace").digest()) or 1


def root_span_id(fault: str) -> int:
    """The 64-bit id of the trace's root span; never 0."""
    return int.from_bytes(hashlib.blake2b(fault.encode(), digest_size=8, person=b"foliot-root").digest()) or 1
