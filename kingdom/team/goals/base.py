"""The contract of a kind of goal. One more is one file and one row in GOALS."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kingdom.team.goals.repository import Repository


class Part(NamedTuple):
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
    parts: Callable[[Repository], list[Part]]
    #: The lines of a part.
    facts: Callable[[Repository, str], list[str]]
    #: The heading of the whole.
    heading: Callable[[Repository], str]
