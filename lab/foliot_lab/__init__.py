"""A real fabric on one machine: namespaces, ECMP, bottlenecks, faults, workloads, skewed clocks."""
