"""`python -m kingdom.chamberlain`: the chamberlain's process. It outlives its launcher, so it ignores HUP."""

import sys

from kingdom import role
from kingdom.chamberlain.rounds import Rounds

if __name__ == "__main__":
    once = role.main_arguments(sys.argv)
    sys.exit(role.run("chamberlain", "chamberlain", Rounds, once=once, survives_hup=True))
