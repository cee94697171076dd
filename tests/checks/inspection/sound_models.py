"""Ten sound models, small."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normlab import layers


class ResidualBlock(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.conv1 = nn.Conv2d(size, size, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(size)
        self.conv2 = nn.Conv2d(size, size, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(size)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + x)


class Block(nn.Module):
    """A transformer block, before or after the sum."""

    def __init__(self, size: int, norm, *, pre: bool):
        super().__init__()
        self.pre = pre
        self.attention = nn.MultiheadAttention(size, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
        self.norm1, self.norm2 = norm(size), norm(size)

    def attend(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]

    def forward(self, x: Tensor) -> Tensor:
        if self.pre:
            x = x + self.attend(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.mlp(x))


class Transformer(nn.Module):
    def __init__(self, size: int, norm, *, pre: bool, tokens: int = 30):
        super().__init__()
        self.embedding = nn.Embedding(tokens, size, padding_idx=0)
        self.blocks = nn.ModuleList([Block(size, norm, pre=pre) for _ in range(2)])
        self.last = norm(size) if pre else nn.Identity()
        self.head = nn.Linear(size, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class RMSNormInFloat32(nn.Module):
    """The way language models write it."""

    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)


class UNet(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.down = nn.Conv2d(3, size, 3, stride=2, padding=1)
        self.norm1 = nn.GroupNorm(2, size)
        self.middle = nn.Conv2d(size, size, 3, padding=1)
        self.norm2 = nn.GroupNorm(2, size)
        self.up = nn.ConvTranspose2d(size, 3, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.norm1(self.down(x)))
        y = y + F.silu(self.norm2(self.middle(y)))
        return x + self.up(y)


class RecurrentCell(nn.Module):
    def __init__(self, inputs: int, size: int):
        super().__init__()
        self.cell = nn.GRUCell(inputs, size)
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        for t in range(x.shape[1]):
            h = self.norm(self.cell(x[:, t], h))
        return self.head(h)


class Mixer(nn.Module):
    def __init__(self, tokens: int, size: int):
        super().__init__()
        self.embed = nn.Conv2d(3, size, 4, stride=4)
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.tokens = nn.Sequential(nn.Linear(tokens, 8), nn.GELU(), nn.Linear(8, tokens))
        self.channels = nn.Sequential(nn.Linear(size, 8), nn.GELU(), nn.Linear(8, size))
        self.head = nn.Linear(size, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return self.head(x.mean(1))


def _own() -> nn.Module:
    """All families, from this package."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        layers.BatchNorm2d(4),
        nn.Conv2d(4, 4, 3, bias=False),
        layers.InstanceNorm2d(4, affine=True),
        nn.Conv2d(4, 4, 3),
        layers.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(36, 8),
        layers.LayerNorm(8),
        nn.Linear(8, 8),
        layers.RMSNorm(8),
        nn.Linear(8, 6, bias=False),
        layers.BatchNorm1d(6),
    )


class LayerNormOverChannels(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, 1e-6)
        return y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Both layouts: over channels in the stem, channels last in the block."""

    def __init__(self, size: int):
        super().__init__()
        self.stem = nn.Conv2d(3, size, 2, stride=2)
        self.first = LayerNormOverChannels(size)
        self.depthwise = nn.Conv2d(size, size, 3, padding=1, groups=size)
        self.norm = nn.LayerNorm(size, eps=1e-6)
        self.wide, self.narrow = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(self.stem(x))
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.narrow(F.gelu(self.wide(y))).permute(0, 3, 1, 2)


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def _style() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.InstanceNorm2d(4, affine=True),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3),
    )


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def _tokens() -> Tensor:
    return torch.tensor([[3, 4, 5, 6, 7], [8, 9, 2, 0, 0]])


SOUND = {
    "convolutional": (_cnn, lambda: torch.randn(4, 3, 9, 9)),
    "residual": (
        lambda: nn.Sequential(ResidualBlock(4), ResidualBlock(4)),
        lambda: torch.randn(3, 4, 6, 5),
    ),
    "pre-norm": (lambda: Transformer(8, nn.LayerNorm, pre=True), _tokens),
    "post-norm": (lambda: Transformer(8, nn.LayerNorm, pre=False), _tokens),
    "RMS language model": (lambda: Transformer(8, RMSNormInFloat32, pre=True), _tokens),
    "U-Net": (lambda: UNet(4), lambda: torch.randn(2, 3, 8, 8)),
    "style": (_style, lambda: torch.randn(2, 3, 9, 9)),
    "MLP": (_mlp, lambda: torch.randn(6, 5)),
    "recurrent": (lambda: RecurrentCell(4, 6), lambda: torch.randn(3, 5, 4)),
    "mixer": (lambda: Mixer(4, 6), lambda: torch.randn(2, 3, 8, 8)),
    "this package's": (_own, lambda: torch.randn(3, 3, 9, 9)),
    "ConvNeXt": (lambda: ConvNeXt(6), lambda: torch.randn(2, 3, 12, 12)),
}
