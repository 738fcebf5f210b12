"""Where a mailbox's folders are, and which names may stand in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kingdom.base.disk.codec import json_kind
from kingdom.base.errors import BadName
from kingdom.base.home.places import Places

NAMES = {"requestsDir": "requests", "processingDir": "processing", "responsesDir": "responses", "deadDir": "dead"}
"""What clients write when nobody told them otherwise; the schema says the same, and a test compares."""
LARGEST_REQUEST = 64 << 20
"""Bytes: a batch of a hundred large payloads. What is larger is not read."""
LONGEST_CLIENT_ID = 250
LONGEST_REQUEST_ID = 200
"""Bytes: a file name may have 255."""


class BadClientName(BadName):
    """{what} {name!r} cannot name a file: {why}; use up to {longest} bytes, no slash, no NUL, no dot at the start"""


def check_client_id(client_id: object) -> str:
    """Return a client's id, which names its folder of answers, or raise BadName."""
    return _path_component("clientId", client_id, LONGEST_CLIENT_ID)


def check_request_id(request_id: object) -> str:
    """Return a request's id, which names its answer, or raise BadName."""
    return _path_component("requestId", request_id, LONGEST_REQUEST_ID)


def _path_component(what: str, name: object, longest: int) -> str:
    if not isinstance(name, str):
        raise BadClientName(what=what, name=name, why=f"{json_kind(name)}, not a text", longest=longest)
    size = len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))
    why = ""
    if not name:
        why = "empty"
    elif size > longest:
        why, name = f"{size} bytes, more than {longest}", f"{name[:40]}…"
    elif name.startswith("."):
        why = "it starts with a dot"
    elif "/" in name or "\0" in name:
        why = "a slash or a NUL is in it"
    elif not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        why = "a lone surrogate, which is no character"
    if why:
        raise BadClientName(what=what, name=name, why=why, longest=longest)
    return name


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
        from kingdom.base.home.config import read_yaml

        try:
            value, _ = read_yaml(places.config / "mq.yaml")
        except FileNotFoundError:
            value = {}
        ipc = value.get("ipc") if isinstance(value, dict) else None
        ipc = ipc if isinstance(ipc, dict) else {}
        return cls.at(places.home / str(ipc["root"]) if "root" in ipc else places.mailbox, ipc)
