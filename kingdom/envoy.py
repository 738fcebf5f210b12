"""`python -m kingdom.envoy`: the envoy's process."""

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime import role
from kingdom.court.envoy.job import EnvoyJob

if __name__ == "__main__":
    sys.exit(role.run(role.RoleSpec("envoy", "envoy", takes_in=("message",), once=role.wants_once(sys.argv)), EnvoyJob))
