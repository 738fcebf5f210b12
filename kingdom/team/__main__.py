"""python -m kingdom.team PATH...: the turn of the agent that KINGDOM_AGENT names, who is told of these messages.

One that it does not understand stays, and holds up no other.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kingdom.errors import KingdomError
from kingdom.runtime import tables
from kingdom.team import AGENTS
from kingdom.team.context import Context


def main(paths: list[str]) -> int:
    agent = os.environ["KINGDOM_AGENT"]
    row = AGENTS.get("ignitian" if agent.startswith("ignitian_") else agent)
    if row is None:
        print(f"there is no {agent} in the team")
        return 1
    code = 0
    for path in paths:
        context = Context(agent, Path(path), Path(os.environ["KINGDOM_WORKSPACE"]))
        try:
            context.work(tables.load(row))
        except KingdomError as error:
            print(error)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
