"""The lab: a real fabric on one machine, with namespaces, ECMP, bottlenecks, faults, workloads and skewed clocks."""
