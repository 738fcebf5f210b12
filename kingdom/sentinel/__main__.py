"""`python -m kingdom.sentinel`: the sentinel's process."""

import sys

import kingdom.runtime.early  # noqa: F401
from kingdom.runtime import role
from kingdom.sentinel.job import SentinelJob

if __name__ == "__main__":
    sys.exit(role.run(role.RoleSpec("sentinel", "sentinel", once=role.wants_once(sys.argv)), SentinelJob))
