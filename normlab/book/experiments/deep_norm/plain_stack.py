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
