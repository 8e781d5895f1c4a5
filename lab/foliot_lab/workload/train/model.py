"""The job's model: a small transformer with large tables, so that gradients fill links while processors stay free.

Each place sees its token. It also sees its last two, three, four and five tokens through hashed n-gram embeddings. They
are as in Pagnoni et al., "Byte Latent Transformer", 2024, section 3.2.1. A row read costs next to nothing. Its gradient
is as large as the table, and travels.
"""

from __future__ import annotations

import torch
from torch import nn

from foliot_lab.workload.train.toy_language import VOCABULARY

LENGTH = 32
"""Tokens of a sentence."""
TABLES = 4
"""Tables of one size. Each is a bucket of gradients of its own, so that operations come in equal pieces, whatever
the number of rails."""
_WIDTH, _HEADS, _LAYERS = 64, 4, 2
_FLOAT_BYTES = 4
_HASH = 2_654_435_761
"""Knuth's multiplicative hash (The Art of Computer Programming 3, section 6.4)."""


class Model(nn.Module):  # type: ignore[misc]  # torch is not there for mypy
    """A model that maps tokens to the logits of each next token.

    Parameters:
        gradient_bytes: the size of all parameters together; the tables have the part that the transformer leaves.
    """

    def __init__(self, gradient_bytes: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, _WIDTH)
        self.places = nn.Embedding(LENGTH, _WIDTH)
        layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, 4 * _WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(_WIDTH, VOCABULARY)
        small = sum(parameter.numel() for parameter in self.parameters())
        rows = max(1, (gradient_bytes // _FLOAT_BYTES - small) // (TABLES * _WIDTH))
        self.tables = nn.ModuleList(nn.Embedding(rows, _WIDTH) for _ in range(TABLES))
        self.table_bytes = rows * _WIDTH * _FLOAT_BYTES
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.02)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Maps sentences of `LENGTH` tokens: batch x place to batch x place x vocabulary."""
        seen = self.tokens(tokens) + self.places.weight
        grams = tokens
        for back, table in enumerate(self.tables, start=1):
            grams = grams * (VOCABULARY + 1) + nn.functional.pad(tokens + 1, (back, 0))[:, :LENGTH]
            seen = seen + table(grams * _HASH % table.num_embeddings)
        return self.head(self.blocks(seen, mask=self.mask, is_causal=True))
