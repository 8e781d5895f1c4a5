"""The language that the job learns: nested brackets of four kinds. A pair's kind mostly follows the kind around it.

The language is artificial, so that nothing has to be downloaded. A model can learn much of it and never all. If both an
opening and a closing bracket are allowed, chance decides between them. The open brackets decide which kind closes.
"""

from __future__ import annotations

import random

KINDS = 4
VOCABULARY = 2 * KINDS
"""Opening brackets, then closing ones."""
_DEEPEST = 6
_USUAL = 0.9
"""The probability that an opening bracket is of the usual kind."""


class Speaker:
    """Sentences of the language, the same ones for the same seed.

    A rank has a speaker of its own for each step. So a step's sentences are the same whoever does it, and when.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def sentence(self, length: int) -> list[int]:
        """That many brackets, from the start of a text. Those still open at the end stay open."""
        draw = self._random
        open_kinds: list[int] = []
        said = []
        for _ in range(length):
            if open_kinds and (len(open_kinds) == _DEEPEST or draw.random() < 0.5):
                said.append(KINDS + open_kinds.pop())
                continue
            usual = (open_kinds[-1] + 1) % KINDS if open_kinds else 0
            kind = usual if draw.random() < _USUAL else draw.randrange(KINDS)
            open_kinds.append(kind)
            said.append(kind)
        return said
