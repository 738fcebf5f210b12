"""`python -m kingdom.sentinel`: the sentinel's process."""

import sys

from kingdom.runtime import role
from kingdom.sentinel.job import SentinelJob

if __name__ == "__main__":
    sys.exit(role.run(role.RoleSpec("sentinel", "sentinel", once=role.wants_once(sys.argv)), SentinelJob))
