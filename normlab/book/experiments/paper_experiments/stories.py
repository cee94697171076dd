"""Stories of three sentences about one person in one place, in a mood that seldom changes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PEOPLE = ("anna", "ben", "carla", "david", "emma", "frank")
VERBS = ("cleaned", "found", "sold", "watched")
THINGS = {
    "farm": ("hens", "cows", "barn", "plough"),
    "sea": ("boat", "nets", "gulls", "shells"),
    "town": ("tram", "shop", "clock", "market"),
    "forest": ("deer", "moss", "pines", "owls"),
}
MOODS = ("glad", "sad")
LENGTH = 6
WORDS = ("", *PEOPLE, *VERBS, *(w for words in THINGS.values() for w in words), "not", *MOODS)
NUMBER = {word: number for number, word in enumerate(WORDS)}
CHANGE = 0.1


class Stories(NamedTuple):
    """A batch of stories."""

    sentences: Tensor  #: (N, 3, 6) word numbers: person, verb, thing and a mood, behind zeros
    person: Tensor  #: (N,)
    place: Tensor  #: (N,)
    moods: Tensor  #: (N, 3), one for each sentence; 0 is glad


def draw_stories(count: int, generator: torch.Generator) -> Stories:
    """Draw stories; either mood is told in two ways, "glad" and "not sad", "sad" and "not glad".

    Conventions:
        from one sentence to the next the mood changes with probability 0.1; verb and thing are
        drawn anew, the thing among the four of the place.
    """

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, (count, *shape), generator=generator)

    person, place = draw(len(PEOPLE)), draw(len(THINGS))
    changes = (torch.rand(count, 2, generator=generator) < CHANGE).long()
    moods = torch.cat([draw(len(MOODS), 1), changes], dim=1).cumsum(1) % 2  # (N, 3)
    verb = NUMBER[VERBS[0]] + draw(len(VERBS), 3)
    thing = NUMBER[VERBS[-1]] + 1 + 4 * place[:, None] + draw(4, 3)
    denied = draw(2, 3)
    mood = NUMBER[MOODS[0]] + (moods + denied) % 2
    people = (NUMBER[PEOPLE[0]] + person)[:, None].expand(-1, 3)
    without = [people * 0, people * 0, people, verb, thing, mood]
    with_not = [people * 0, people, verb, thing, people * 0 + NUMBER["not"], mood]
    kinds = torch.stack([torch.stack(without, -1), torch.stack(with_not, -1)], dim=2)
    chosen = denied[..., None, None].expand(-1, -1, 1, LENGTH)
    return Stories(kinds.gather(2, chosen).squeeze(2), person, place, moods)
