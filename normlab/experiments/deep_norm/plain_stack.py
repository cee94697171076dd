"""A whole Transformer of plain blocks and the loop that trains it, to read and to copy."""

import torch
from torch import nn

from normlab.plain import DeepNormBlock


class Reverser(nn.Module):
    """Tokens (N, T) to logits (N, T, V), through DeepNorm blocks of width D."""

    def __init__(self, layers, alpha, beta, width=32, vocabulary=6, length=6):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width))
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(
            *(DeepNormBlock(width, 4, 2 * width, alpha, beta) for _ in range(layers))
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.blocks(self.norm(self.tokens(x) + self.places)))


def train(model, steps, lr):
    """Teach a model to reverse random sequences; give the share of right tokens at each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    right = []
    for _ in range(steps):
        x = torch.randint(6, (16, 6))  # (N, T), fresh in every step
        logits = model(x)  # (N, T, V)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), x.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append((logits.argmax(-1) == x.flip(1)).double().mean().item())
    return right


class ScaledInput(nn.Module):
    """A layer norm of alpha times its input: neither a branch nor a sum."""

    def __init__(self, width, alpha=1.0, eps=1e-6):
        super().__init__()
        self.alpha = alpha
        self.layer_norm = nn.LayerNorm(width, eps=eps)

    def forward(self, x):
        return self.layer_norm(self.alpha * x)
