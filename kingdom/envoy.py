"""`python -m kingdom.envoy`: the envoy's process."""

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime import role
from kingdom.court.envoy.job import EnvoyJob

if __name__ == "__main__":
    once = role.wants_once(sys.argv)
    spec = role.RoleSpec("envoy", "envoy", also_reads=("hall",), takes_in=("message",), once=once)
    sys.exit(role.run(spec, EnvoyJob))
