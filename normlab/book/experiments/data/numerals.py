"""A text for language models that is counted, not copied: the numbers in English words."""

from __future__ import annotations

import torch
from torch import Tensor

BELOW_TWENTY = (
    "zero one two three four five six seven eight nine "
    "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
ONES = BELOW_TWENTY.split()
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ALPHABET = tuple(" ,-defghilnorstuvwxyz")


def name_number(n: int) -> str:
    """The name of a number.

    Example:
        >>> name_number(17), name_number(40), name_number(921)
        ('seventeen', 'forty', 'nine hundred twenty-one')
    """
    if not 0 <= n < 1000:
        raise ValueError(f"n: got {n}; expected 0 to 999")
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{ONES[n % 10]}" if n % 10 else "")
    return f"{ONES[n // 100]} hundred" + (f" {name_number(n % 100)}" if n % 100 else "")


def encode(text: str) -> Tensor:
    """Places of the characters in :data:`ALPHABET`, (len(text),) long."""
    strange = set(text) - set(ALPHABET)
    if strange:
        raise ValueError(f"text: got {sorted(strange)}; expected letters of the names of numbers")
    return torch.tensor([ALPHABET.index(character) for character in text])


def decode(tokens: Tensor) -> str:
    """The text of (T,) tokens.

    Example:
        >>> decode(encode("forty-two, "))
        'forty-two, '
    """
    return "".join(ALPHABET[token] for token in tokens.tolist())


def counting_text(stop: int = 1000) -> Tensor:
    """The numbers from 1 to below `stop` in words, separated by commas, as tokens.

    Example:
        >>> decode(counting_text(5))
        'one, two, three, four, '
    """
    return encode("".join(f"{name_number(n)}, " for n in range(1, stop)))
