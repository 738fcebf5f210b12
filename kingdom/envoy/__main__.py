"""`python -m kingdom.envoy`: the envoy's process."""

import sys

from kingdom import role
from kingdom.envoy.outbound import Outbound

if __name__ == "__main__":
    sys.exit(role.run("envoy", "envoy", Outbound, once=role.main_arguments(sys.argv)))
