"""Foliot beside its peers, on the same work in the same run."""
