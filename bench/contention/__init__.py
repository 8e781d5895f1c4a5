"""Contention in a real lab: what is drawn, what is said of it and moved for it, and what becomes of the jobs."""
