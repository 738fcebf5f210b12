"""The contract of a kind of goal. One more is one file and one row in GOALS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kingdom.council.team.goals.repository import Repository

MOST_PARTS = 5
"""Of a goal that has a part for each folder."""


class GoalPart(NamedTuple):
    """One part of a deliverable, which one agent can make without the others."""

    key: str
    #: Its heading.
    title: str
    #: What its agent has to be good at.
    skill: str


class Goal(NamedTuple):
    title: str
    #: The name of the file with the whole.
    file: str
    #: The goal is meant when all the words of one of these are said.
    words: tuple[tuple[str, ...], ...]
    parts: Callable[[Repository], list[GoalPart]]
    #: The lines of a part.
    facts: Callable[[Repository, str], list[str]]
    #: The heading of the whole.
    heading: Callable[[Repository], str]


def keys_of(folders: Iterable[str]) -> list[str]:
    """Return the keys of parts, one for each folder; where there are many, the last is for all that are left."""
    listed = sorted(set(folders))
    most = MOST_PARTS - 1
    return listed if len(listed) <= MOST_PARTS else [*listed[:most], "+" + "/".join(listed[most:])]


def is_in(folder: str, key: str) -> bool:
    """Return whether a folder belongs to the part with this key."""
    return folder in key[1:].split("/") if key.startswith("+") else folder == key
