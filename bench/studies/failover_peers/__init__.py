"""Foliot's peers, which find or survive a fault: BFD, nexthop groups and MPTCP, under the lab's faults."""
