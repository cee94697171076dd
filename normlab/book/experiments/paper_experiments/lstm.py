"""An LSTM cell with layer norm in the places that the layer norm paper and its users give it."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from normlab.layers import LayerNorm

LstmNorm = Literal["none", "cell", "sums", "sums with bias"]
State = tuple[Tensor, Tensor]


class LstmCell(nn.Module):
    r"""One step of an LSTM whose layer norms are chosen by name.

    .. math:: (f, i, o, g) &= N_h(U h) + N_x(W x) + b \\
              c &\leftarrow \sigma(f) \odot c + \sigma(i) \odot \tanh(g) \\
              h &\leftarrow \sigma(o) \odot \tanh(N_c(c))

    Args:
        norm: "none"; "cell", only the third norm; "sums", all three as written above;
            "sums with bias", all three, with the bias inside the second one: `N_x(W x + b)`.

    Source:
        ba2016layer, supplement: "sums" is its LSTM, "cell" is how its DRAW model has it;
        "sums with bias" is that of kiros2016code, which adds the same bias behind once more.
    """

    def __init__(self, inputs: int, hidden: int, norm: LstmNorm = "none") -> None:
        super().__init__()
        if norm not in get_args(LstmNorm):
            raise ValueError(f"norm: got {norm!r}; expected one of {', '.join(get_args(LstmNorm))}")
        self.hidden = hidden
        self.norm = norm
        self.x_sums = nn.Linear(inputs, 4 * hidden)
        self.h_sums = nn.Linear(hidden, 4 * hidden, bias=False)
        sums = norm in ("sums", "sums with bias")
        self.x_norm = LayerNorm(4 * hidden) if sums else nn.Identity()
        self.h_norm = LayerNorm(4 * hidden) if sums else nn.Identity()
        self.cell_norm = nn.Identity() if norm == "none" else LayerNorm(hidden)

    def start(self, like: Tensor) -> State:
        """Zeros for the rows of `like`."""
        zeros = like.new_zeros(len(like), self.hidden)
        return zeros, zeros

    def forward(self, x: Tensor, state: State) -> State:
        """Read x (N, inputs) and return the next (h, c), each (N, hidden)."""
        h, c = state
        if self.norm == "sums":
            from_x = self.x_norm(linear(x, self.x_sums.weight)) + self.x_sums.bias
        else:
            from_x = self.x_norm(self.x_sums(x))
        f, i, o, g = (self.h_norm(self.h_sums(h)) + from_x).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * self.cell_norm(c).tanh(), c


def make_lstm_cell(inputs: int, hidden: int, norm: LstmNorm = "none", *, seed: int) -> LstmCell:
    """Build an :class:`LstmCell` whose initial weights depend on `seed` alone, not on `norm`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LstmCell(inputs, hidden, norm)
