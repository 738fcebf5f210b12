"""`python -m kingdom.envoy`: the envoy's process."""

import sys

from kingdom import role
from kingdom.envoy.outbound import Outbound

if __name__ == "__main__":
    sys.exit(role.run(role.Life("envoy", "envoy", once=role.asked_once(sys.argv)), Outbound))
