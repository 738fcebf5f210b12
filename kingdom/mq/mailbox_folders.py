"""Where a mailbox's folders are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kingdom.home.places import Places

NAMES = {"requestsDir": "requests", "processingDir": "processing", "responsesDir": "responses", "deadDir": "dead"}
"""What clients write when nobody told them otherwise; the schema says the same, and a test compares."""


@dataclass(frozen=True, slots=True)
class MailboxFolders:
    root: Path
    #: Clients rename their requests in here.
    requests: Path
    #: Requests that wait for a message, or that must not run twice.
    processing: Path
    #: One folder of answers per client.
    responses: Path
    #: Requests that cannot be read, each with its reason.
    dead: Path

    @classmethod
    def at(cls, root: Path, ipc: Mapping[str, Any] = NAMES) -> Self:
        """Return the folders of the mailbox at `root`, named as the configuration's `ipc` names them."""
        here = root.absolute()
        return cls(here, *(here / str(ipc.get(key, name)) for key, name in NAMES.items()))

    @classmethod
    def of_home(cls, places: Places) -> Self:
        """Find the home's mailbox without checking the whole file: a command line has no time for that."""
        from kingdom.home.config import read_yaml

        try:
            value, _ = read_yaml(places.config / "mq.yaml")
        except FileNotFoundError:
            value = {}
        ipc = value.get("ipc") if isinstance(value, dict) else None
        ipc = ipc if isinstance(ipc, dict) else {}
        return cls.at(places.home / str(ipc["root"]) if "root" in ipc else places.mailbox, ipc)
