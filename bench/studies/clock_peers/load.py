"""Sends bursty UDP. It runs as a program of its own in a loading host's namespace.

    python -m bench.studies.clock_peers.load ADDRESS MBPS SEED

It sends bursts of some packets back to back, with exponential gaps. The queue is empty for about the share that the
load leaves.
"""

from __future__ import annotations

import random
import socket
import sys
import time

PORT = 9
"""The discard port, RFC 863."""
PAYLOAD_BYTES = 1_400
_WIRE_BYTES = PAYLOAD_BYTES + 20 + 8 + 14
_MEAN_PACKETS = 16
_MOST_PACKETS = 44
"""The packets in a datagram of 64 kB, which the kernel then cuts: one system call a burst."""
_UDP_SEGMENT = 103
"""Number of the option in linux/udp.h; Python's socket module does not have it."""
_LATE_S = 0.05
"""Bursts that are later than this are not made up for: together they would be a load of their own."""


def bursts(rate_mbps: float, draw: random.Random) -> tuple[int, float]:
    """The packets of the next burst, and the mean of the exponential time until the one after it, in seconds."""
    packets = min(1 + int(draw.expovariate(1 / _MEAN_PACKETS)), _MOST_PACKETS)
    return packets, draw.expovariate(1.0) * packets * _WIRE_BYTES * 8 / (rate_mbps * 1e6)


def main() -> None:
    """Sends until the process is ended."""
    address, rate_mbps, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    draw, data = random.Random(seed), bytes(PAYLOAD_BYTES * _MOST_PACKETS)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD_BYTES)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        due_s = time.monotonic()
        while True:
            packets, gap_s = bursts(rate_mbps, draw)
            sender.sendto(data[: packets * PAYLOAD_BYTES], (address, PORT))
            due_s = max(due_s + gap_s, time.monotonic() - _LATE_S)
            time.sleep(max(0.0, due_s - time.monotonic()))


if __name__ == "__main__":
    main()
