"""`python -m kingdom.king`: the king's process."""

import sys

from kingdom import role
from kingdom.king.court import Court

if __name__ == "__main__":
    sys.exit(role.run(role.Life("king", "king", once=role.asked_once(sys.argv)), Court))
