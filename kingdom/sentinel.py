"""`python -m kingdom.sentinel`: the sentinel's process."""

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime import role
from kingdom.court.sentinel.job import SentinelJob

if __name__ == "__main__":
    sys.exit(role.run(role.RoleSpec("sentinel", "sentinel", once=role.wants_once(sys.argv)), SentinelJob))
