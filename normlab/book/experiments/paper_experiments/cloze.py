"""Passages about people without names, and a question with a gap for each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SENTENCES = 3
ENTITIES = 6
VERBS = ("called", "met", "paid", "thanked")
GAP = ENTITIES + len(VERBS)
WORDS = (*(f"@{n}" for n in range(ENTITIES)), *VERBS, "X")


class Cloze(NamedTuple):
    """A batch of questions about passages."""

    passage: Tensor  #: (N, 9) word numbers, three sentences of subject, verb and object
    question: Tensor  #: (N, 3), one of the sentences with a gap for its subject or its object
    answer: Tensor  #: (N,) the entity in the gap


def draw_cloze(count: int, generator: torch.Generator) -> Cloze:
    """Draw passages whose three verbs differ, so that every question has one answer.

    Args:
        count: N.
        generator: of all draws. The names are drawn anew for each passage, so what is learned
            about a name in one passage says nothing about the next.
    """
    verbs = ENTITIES + torch.rand(count, len(VERBS), generator=generator).argsort(1)[:, :SENTENCES]
    subjects = torch.randint(ENTITIES, (count, SENTENCES), generator=generator)
    shift = torch.randint(1, ENTITIES, (count, SENTENCES), generator=generator)
    objects = (subjects + shift) % ENTITIES
    passage = torch.stack([subjects, verbs, objects], dim=-1)  # (N, 3, 3)
    rows = torch.arange(count)
    question = passage[rows, torch.randint(SENTENCES, (count,), generator=generator)]
    gap = 2 * torch.randint(2, (count,), generator=generator)
    answer = question[rows, gap]
    question = question.clone()
    question[rows, gap] = GAP
    return Cloze(passage.flatten(1), question, answer)


def write_out(words: Tensor) -> str:
    """Text of word numbers, a full stop after every third.

    Example:
        >>> write_out(torch.tensor([3, 6, 0, 10, 7, 5]))
        '@3 called @0. X met @5.'
    """
    names = [WORDS[word] for word in words.tolist()]
    return " ".join(f"{' '.join(names[i : i + 3])}." for i in range(0, len(names), 3))
