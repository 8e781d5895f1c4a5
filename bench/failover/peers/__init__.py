"""What else finds or survives a fault: BFD, nexthop groups, MPTCP; each in the lab's fabric, under the lab's faults."""
