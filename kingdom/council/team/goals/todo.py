"""An inventory of what files mark as to be done."""

from __future__ import annotations

import re

from kingdom.council.team.goals.base import Goal, GoalPart, is_in, keys_of
from kingdom.council.team.goals.repository import Repository, code, quoted

MARK = re.compile(r"(?<![\w-])(TODO|FIXME|XXX|HACK)(?![\w-])[:( ]?\s*(.*)")
HERE = "."


def parts(repository: Repository) -> list[GoalPart]:
    """Return a part for each folder at the top, the last one for all that are left."""
    keys = keys_of(map(_top, repository.files))
    return [GoalPart(key, _title(key), "reading") for key in keys or [HERE]]


def facts(repository: Repository, key: str) -> list[str]:
    found = []
    for path in repository.files:
        if is_in(_top(path), key):
            for number, line in enumerate(repository.text(path).splitlines(), start=1):
                if (mark := MARK.search(line)) is not None:
                    found.append(f"- {code(f'{path}:{number}')} {mark[1]}: {quoted(mark[2]) or 'nothing more'}")
    return found


def _top(path: str) -> str:
    return path.partition("/")[0] if "/" in path else HERE


def _title(key: str) -> str:
    if key == HERE:
        return "TODOs at the top"
    if key.startswith("+"):
        return "TODOs in all other folders"
    return f"TODOs in {quoted(key)}"


def heading(repository: Repository) -> str:
    return f"What is to be done in {repository.name}"


TODO = Goal("an inventory of TODOs", "TODO-inventory.md", (("todo",), ("fixme",)), parts, facts, heading)
