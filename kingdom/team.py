"""python -m kingdom.team PATH...: the turn of the agent that KINGDOM_AGENT names, who is told of these messages.

One that it does not understand stays, and holds up no other.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kingdom.base import tables
from kingdom.base.errors import KingdomError
from kingdom.base.words import one_line
from kingdom.council.team import AGENTS
from kingdom.council.team.context import Context


def main(paths: list[str]) -> int:
    agent, folder = os.environ.get("KINGDOM_AGENT", ""), os.environ.get("KINGDOM_WORKSPACE", "")
    if not agent or not folder:
        print("the council starts this program, and sets KINGDOM_AGENT and KINGDOM_WORKSPACE")
        return 2
    row = AGENTS.get("ignitian" if agent.startswith("ignitian_") else agent)
    if row is None:
        print(f"there is no {agent} in the team")
        return 1
    code = 0
    for path in paths:
        context = Context(agent, Path(path), Path(folder))
        try:
            context.work(tables.load(row))
        except KingdomError as error:
            print(error)
            code = 1
        except Exception as error:  # noqa: BLE001
            # The edge of one message, whose body anybody may have written: it stays, is told again, and given up in the
            # end with these words as the reason.
            print(f"{context.path.name}: {type(error).__name__}: {one_line(error, 200)}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
