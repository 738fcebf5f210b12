"""`python -m kingdom.chamberlain`: the chamberlain's process. It outlives its launcher, so it ignores HUP."""

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime import role
from kingdom.court.chamberlain.job import ChamberlainJob

if __name__ == "__main__":
    once = role.wants_once(sys.argv)
    spec = role.RoleSpec("chamberlain", "chamberlain", once=once, survives_hup=True, keeps_config=True)
    sys.exit(role.run(spec, ChamberlainJob))
