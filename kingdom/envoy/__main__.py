"""`python -m kingdom.envoy`: the envoy's process."""

import sys

import kingdom.runtime.early  # noqa: F401
from kingdom.envoy.job import EnvoyJob
from kingdom.runtime import role

if __name__ == "__main__":
    sys.exit(role.run(role.RoleSpec("envoy", "envoy", takes_in=("message",), once=role.wants_once(sys.argv)), EnvoyJob))
