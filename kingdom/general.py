"""`python -m kingdom.general <name>`: one general's process."""

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.errors import Exit
from kingdom.base.runtime import role
from kingdom.court.general.job import GeneralJob

if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].startswith("gen-"):
        print("which general? python -m kingdom.general gen-briefing", file=sys.stderr)
        sys.exit(Exit.REFUSED)
    takes_in, once = ("task", "raw-report", "result"), role.wants_once(sys.argv)
    spec = role.RoleSpec(sys.argv[1], "general", also_reads=("king",), takes_in=takes_in, once=once)
    sys.exit(role.run(spec, GeneralJob))
