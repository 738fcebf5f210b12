"""python -m kingdom.council [--once]: tells agents of the IGNITE protocol about their messages."""

from __future__ import annotations

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime.role import RoleSpec, run, wants_once
from kingdom.council.monitor.job import CouncilJob


def main() -> int:
    return run(RoleSpec("council", "council", also_reads=("general",), once=wants_once(sys.argv)), CouncilJob)


if __name__ == "__main__":
    sys.exit(main())
