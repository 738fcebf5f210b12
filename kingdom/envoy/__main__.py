"""`python -m kingdom.envoy`: the envoy's process."""

import sys

from kingdom.envoy.outbound import Outbound
from kingdom.runtime import role

if __name__ == "__main__":
    sys.exit(role.run(role.RoleSpec("envoy", "envoy", once=role.wants_once(sys.argv)), Outbound))
