"""Simulations that have run for a while: each is run once, and every test has a copy of its own."""

from __future__ import annotations

import functools
import pickle


def prepared(make, **options):
    """What a function of a module makes by these options."""
    return pickle.loads(_made(make, pickle.dumps(options)))


@functools.lru_cache(maxsize=64)
def _made(make, options):
    # Pickled and not copied deeply: a deep copy shares functions, and so perhaps what such a function knows of.
    return pickle.dumps(make(**pickle.loads(options)))
