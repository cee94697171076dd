"""A whole Transformer of plain blocks, to read and to copy."""

import torch
from torch import nn

from normlab import layers as norms
from normlab.book.experiments.deep_norm.groups import make_batches
from normlab.book.experiments.sequence_training import make_optimizer, train_on_sequences
from normlab.plain import DeepNormBlock


class Reverser(nn.Module):
    """Tokens (N, T) to logits (N, T, V), through DeepNorm blocks of width D."""

    def __init__(self, layers, alpha, beta, width=32, vocabulary=6, length=6):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width))
        self.norm = norms.LayerNorm(width)
        self.blocks = nn.Sequential(
            *(
                DeepNormBlock(width, 4, 2 * width, alpha, beta, norm=norms.LayerNorm)
                for _ in range(layers)
            )
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.blocks(self.norm(self.tokens(x) + self.places)))


class CrossAttentionBlock(nn.Module):
    """The block in which a decoder's y (N, T, D) reads an encoder's memory (N, S, D)."""

    def __init__(self, width, heads, alpha, beta, norm=nn.LayerNorm):
        super().__init__()
        self.heads, self.alpha, self.norm = heads, alpha, norm(width)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        for layer in (self.query, self.key, self.value, self.output):
            gain = 1.0 if layer in (self.query, self.key) else beta
            nn.init.xavier_normal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, y, memory):
        q, k, v = (
            layer(given).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, heads, *, D/heads)
            for layer, given in ((self.query, y), (self.key, memory), (self.value, memory))
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return self.norm(self.alpha * y + self.output(mixed.flatten(2)))  # (N, T, D)


def teach(model, *, lr, seed=0):
    """Teach a model to reverse sequences; give the share of right letters in the last ten steps."""
    optimizer = make_optimizer(model, lr=lr)
    batches = make_batches("large", seed=seed)
    return train_on_sequences(model, batches, steps=60, optimizer=optimizer).final_accuracy(10)


class ScaledInput(nn.Module):
    """A layer norm of alpha times its input: neither a branch nor a sum."""

    def __init__(self, width, alpha=1.0, eps=1e-6):
        super().__init__()
        self.alpha = alpha
        self.layer_norm = norms.LayerNorm(width, eps=eps)

    def forward(self, x):
        return self.layer_norm(self.alpha * x)
