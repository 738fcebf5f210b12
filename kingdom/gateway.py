"""python -m kingdom.gateway [NAME]: HTTP and Socket.IO in front of the chat."""

from __future__ import annotations

import argparse
import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime.role import RoleSpec, Services, run
from kingdom.hall.gateway.job import GatewayJob


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kingdom.gateway", description="Serves the chat over HTTP and Socket.IO."
    )
    parser.add_argument("name", nargs="?", help="an instance that config/hall.yaml names: its role is gateway-NAME")
    given = parser.parse_args()

    def build(services: Services) -> GatewayJob:
        return GatewayJob(services, given.name)

    return run(RoleSpec(f"gateway-{given.name}" if given.name else "gateway", "hall"), build)


if __name__ == "__main__":
    sys.exit(main())
