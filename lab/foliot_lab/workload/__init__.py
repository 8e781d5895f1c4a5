"""Workloads of the fabric: flows and training jobs."""
