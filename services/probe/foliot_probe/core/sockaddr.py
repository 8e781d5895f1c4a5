"""The address of a datagram as the kernel writes it."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AF_INET = 2

Address = np.dtype([("family", "<u2"), ("port", ">u2"), ("address", ">u4"), ("zero", "<u8")])
"""``struct sockaddr_in``."""


def sockaddr(address: str | int, port: int) -> NDArray[Any]:
    """One row of dtype `Address`.

    Raises:
        ValueError: that is no IPv4 address.
    """
    return np.array([(_AF_INET, port, int(IPv4Address(address)), 0)], Address)
