"""The sentinel's process with GitHub and Jira inside it, which remember what they are told beyond its end.

`python tests/faults/sentinel_step.py HOME`: they answer as the proxy of this process, so that no port stands in the
home, and homes can be copied and run side by side.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Self

from kingdom.base.disk.atomic import make_folder
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.jira import Jira
from kingdom.demo.standins.server import Answer, HttpRequest, StandIn

HUB, TICKETS = "http://github.invalid", "http://localhost:1"


class Hub(GitHub):
    address = HUB  # type: ignore[assignment]


class Tickets(Jira):
    address = TICKETS  # type: ignore[assignment]


class World(StandIn):
    """Both services behind one port."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        folder = home / "world"
        make_folder(folder)
        self.hub = Hub(journal=folder / "github")
        self.tickets = Tickets(journal=folder / "jira")

    def start(self) -> Self:
        self.hub.start()
        self.tickets.start()
        return super().start()

    def close(self) -> None:
        super().close()
        self.hub.close()
        self.tickets.close()

    def answer(self, request: HttpRequest) -> Answer:
        return (self.tickets if request.path.startswith("/rest/") else self.hub).answer(request)


def main(home: Path) -> None:
    with World(home) as world:
        os.environ["http_proxy"] = f"http://127.0.0.1:{world.port}"
        sys.argv = ["sentinel", "--once"]
        runpy.run_module("kingdom.sentinel", run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
