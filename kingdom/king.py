"""`python -m kingdom.king`: the king's process."""

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime import role
from kingdom.court.king.job import KingJob

if __name__ == "__main__":
    takes_in = ("event", "task", "result", "order")
    sys.exit(role.run(role.RoleSpec("king", "king", takes_in=takes_in, once=role.wants_once(sys.argv)), KingJob))
