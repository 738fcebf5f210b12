"""`python -m kingdom.king`: the king's process."""

import sys

from kingdom.king.job import KingJob
from kingdom.runtime import role

if __name__ == "__main__":
    sys.exit(role.run(role.RoleSpec("king", "king", once=role.wants_once(sys.argv)), KingJob))
