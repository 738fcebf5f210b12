"""python -m kingdom.mailbox [--config FILE] [--once]: the manager of the queue and its mailbox."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime.role import RoleSpec, Services, run
from kingdom.mq.mailbox.manager import Manager


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kingdom.mailbox",
        description="The manager of Yi-Rang MQ: answers the requests of queue/mailbox.",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="read this configuration instead of config/mq.yaml; an older JSON file will do",
    )
    parser.add_argument("--once", action="store_true", help="answer the requests that are there, then end")
    given = parser.parse_args()

    def build(services: Services) -> Manager:
        return Manager(services, given.config)

    return run(RoleSpec("mailbox", "mq", once=given.once), build)


if __name__ == "__main__":
    sys.exit(main())
