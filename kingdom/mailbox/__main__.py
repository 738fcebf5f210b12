"""python -m kingdom.mailbox [--config FILE] [--once]"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kingdom.mailbox.manager import Manager
from kingdom.runtime.role import RoleSpec, Services, run


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m kingdom.mailbox", description="Yi-Rang MQ's manager")
    words.add_argument(
        "--config", type=Path, metavar="FILE", help="instead of config/mq.yaml; an older JSON file is fine"
    )
    words.add_argument("--once", action="store_true", help="serve what waits, then end")
    given = words.parse_args()

    def build(services: Services) -> Manager:
        return Manager(services, given.config)

    return run(RoleSpec("mailbox", "mq", once=given.once), build)


if __name__ == "__main__":
    sys.exit(main())
