"""Benches: measurements of Foliot, and of its peers on the same work in the same run."""
