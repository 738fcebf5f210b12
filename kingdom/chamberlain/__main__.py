"""`python -m kingdom.chamberlain`: the chamberlain's process. It outlives its launcher, so it ignores HUP."""

import sys

from kingdom import role
from kingdom.chamberlain.rounds import Rounds

if __name__ == "__main__":
    life = role.Life("chamberlain", "chamberlain", once=role.asked_once(sys.argv), survives_hup=True)
    sys.exit(role.run(life, Rounds))
