"""Two small generative models of binary digits: a variational autoencoder and a DRAW network."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from normlab.book.experiments.networks.classifiers import FeatureNorm, make_mlp
from normlab.book.experiments.paper_experiments.lstm import LstmCell, LstmNorm

PIXELS = 64


def _sample(statistics: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw latents from normals given as (mean, log variance); also their KL to the standard."""
    mean, log_var = statistics.chunk(2, dim=-1)
    noise = torch.randn(mean.shape, generator=generator)
    kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(-1)
    return mean + noise * (0.5 * log_var).exp(), kl


class Autoencoder(nn.Module):
    """A variational autoencoder of two multilayer perceptrons.

    Args:
        hidden: units of each of three hidden layers, in encoder and decoder.

    Source:
        kingma2014autoencoding, Section 3.
    """

    def __init__(self, norm: FeatureNorm, *, seed: int, latent: int = 8, hidden: int = 128) -> None:
        super().__init__()
        widths = (hidden, hidden, hidden)
        self.encoder = make_mlp((PIXELS, *widths, 2 * latent), norm, seed=seed)
        self.decoder = make_mlp((latent, *widths, PIXELS), norm, seed=seed + 1000)

    def reconstruct(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Logits (N, 64) of the pixels and the KL divergence (N,) of the code, in one go."""
        z, kl = _sample(self.encoder(x), generator)
        return cast(Tensor, self.decoder(z)), kl


class Draw(nn.Module):
    """An image drawn in several strokes on a canvas by two LSTMs, each with a code; no attention.

    Source:
        gregor2015draw, Section 2, with the reading and writing of its Section 3.1, which look
        at the whole image.
    """

    def __init__(
        self, norm: LstmNorm, *, seed: int, latent: int = 4, hidden: int = 64, glimpses: int = 6
    ) -> None:
        super().__init__()
        self.glimpses = glimpses
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = LstmCell(2 * PIXELS + hidden, hidden, norm)
            self.decoder = LstmCell(latent, hidden, norm)
            self.code = nn.Linear(hidden, 2 * latent)
            self.write = nn.Linear(hidden, PIXELS)

    def reconstruct(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The same in strokes; every stroke has a code of its own."""
        encoded, decoded = self.encoder.start(x), self.decoder.start(x)
        canvas, total = torch.zeros_like(x), x.new_zeros(len(x))
        for _ in range(self.glimpses):
            error = x - canvas.sigmoid()
            encoded = self.encoder(torch.cat([x, error, decoded[0]], dim=-1), encoded)
            z, kl = _sample(self.code(encoded[0]), generator)
            decoded = self.decoder(z, decoded)
            canvas, total = canvas + self.write(decoded[0]), total + kl
        return canvas, total


def negative_bound(model: Autoencoder | Draw, x: Tensor, generator: torch.Generator) -> Tensor:
    """Mean over images of the negative variational bound on their log-probability, in nats.

    Args:
        x: (N, 64) pixels, 0 or 1.

    Source:
        kingma2014autoencoding, Eq. 10; gregor2015draw, Section 2.2.
    """
    logits, kl = model.reconstruct(x, generator)
    missed = binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
    return (missed + kl).mean()
