"""`python -m kingdom.king`: the king's process."""

import sys

from kingdom import role
from kingdom.king.court import Court

if __name__ == "__main__":
    sys.exit(role.run("king", "king", Court, once=role.main_arguments(sys.argv)))
