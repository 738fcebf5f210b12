"""python -m kingdom.worker [name]: stores what people say in the hall, and tells the gateways."""

from __future__ import annotations

import sys

import kingdom.base.runtime.early  # noqa: F401
from kingdom.base.runtime.role import RoleSpec, run, wants_once
from kingdom.hall.worker.job import WorkerJob


def main() -> int:
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    role = "-".join(["worker", *names[:1]])
    return run(RoleSpec(role, "hall", once=wants_once(sys.argv)), WorkerJob)


if __name__ == "__main__":
    sys.exit(main())
