"""`python -m kingdom.general <name>`: one general's process."""

import sys

from kingdom import role
from kingdom.general.campaign import Campaign

if __name__ == "__main__":
    sys.exit(role.run(sys.argv[1], "general", Campaign, once=role.main_arguments(sys.argv)))
