"""Folders that the original manager has written become queues of ours: each file is renamed, and stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile
from kingdom.mq import names
from kingdom.mq.stores.base import queue_folder
from kingdom.mq.stores.original_messages import Original, envelope, name_of

LARGEST = 64 << 20
LONGEST_KEY = 48
"""Of the end of a key, in bytes, so that a name of ours still is a file's name; a longer one gets a key of ours."""


class Source(NamedTuple):
    """A file of the original and where it goes."""

    path: str
    message: Original
    #: The folder of its new state, below the queue's.
    to: str


def names_a_queue(folder: str, inbox: str) -> str:
    """Return the queue to which a folder without a record belongs; an empty text when it is none."""
    base = os.path.basename(folder)
    if not os.path.isdir(f"{folder}/{inbox}"):
        return ""
    plain = unquote(base, errors="replace")
    return plain if queue_folder(plain) == base else _told(folder, inbox, base) or base


def _told(folder: str, inbox: str, base: str) -> str:
    """Return the name that a message says, when the folder is made of it."""
    with os.scandir(f"{folder}/{inbox}") as entries:
        for entry in entries:
            queue = _envelope(entry.path).get("queue")
            return queue if isinstance(queue, str) and queue_folder(queue) == base else ""
    return ""


def policy_of(root: str, queue: str) -> str:
    """Return the policy that the original keeps for a queue, as it stands there; an empty text: none."""
    if "/" in queue:
        return ""
    with suppress(FileNotFoundError, BadFile, UnicodeDecodeError):
        return read_bytes(f"{root}/meta/policy_{queue}.json").decode()
    return ""


def take_over(root: str, folder: str, queue: str, folders: Mapping[str, str], disk: Disk) -> str:
    """Rename the files of a queue to names of ours. Returns the folder, which may have another name now."""
    ours = f"{root}/{queue_folder(queue)}"
    if folder != ours and not os.path.exists(ours):
        disk.move(Path(folder), Path(ours))
        folder = ours
    leases = _leases(f"{root}/meta/leases")
    found = sorted(_sources(folder, queue, folders, leases), key=lambda source: _int(source.message.created))
    taken: set[str] = set()
    moves: list[tuple[Path, Path]] = []
    for number, source in enumerate(found, 1):
        name = name_of(_with_key_of_its_own(source.message._replace(sequence=number), taken))
        moves.append((Path(source.path), Path(folder, source.to, f"{name}.json")))
    for place in {new.parent for _, new in moves}:
        make_folder(place)
    disk.move_all(moves)
    with suppress(OSError):
        os.rmdir(f"{folder}/delayed")
    return folder


def _with_key_of_its_own(message: Original, taken: set[str]) -> Original:
    """The original may use an id again: the second message of a queue with it gets a number behind its key."""
    key, number = message.key, 1
    if len(key.removeprefix(f"msg:{message.queue}:").encode()) > LONGEST_KEY:
        key = names.key(message.queue, names.foreign_id(key))
    while key in taken:
        number += 1
        key = f"{message.key}-{number}"
    taken.add(key)
    return message._replace(key=key)


def _sources(
    folder: str, queue: str, folders: Mapping[str, str], leases: Mapping[str, Mapping[str, Any]]
) -> Iterator[Source]:
    """Yield what lies in the folders of a queue under names that are not ours."""
    states = {"inbox": "ready", "processing": "inflight", "archive": "archived", "dlq": "dlq"}
    for kind, state in (*states.items(), ("delayed", "delayed")):
        place = f"{folder}/{folders.get(kind, kind)}"
        if not os.path.isdir(place):
            continue
        with os.scandir(place) as entries:
            for entry in list(entries):
                stem = entry.name.removesuffix(".json")
                if stem == entry.name or names.is_name(stem) or stem.startswith("."):
                    continue
                about = _envelope(entry.path)
                if "payload" in about and ("key" in about or "messageId" in about):
                    yield _source(entry, stem, queue, state, folders, about, leases)


def _source(
    entry: os.DirEntry[str],
    stem: str,
    queue: str,
    state: str,
    folders: Mapping[str, str],
    about: Mapping[str, Any],
    leases: Mapping[str, Mapping[str, Any]],
) -> Source:
    key = about.get("key")
    if not isinstance(key, str) or not key:
        key = names.key(queue, stem)
    due = about.get("availableAt") or about.get("createdAt") or 0
    consumer = ""
    if state == "inflight":
        lease = leases.get(key) or leases.get(stem) or {}
        due, consumer = lease.get("leaseUntil") or due, str(lease.get("consumerId") or "")
        state = "inflight" if lease else "ready"
    elif state == "dlq":
        due = about.get("dlqAt") or due
    elif state == "archived":
        due = entry.stat().st_mtime_ns // 1_000_000
    message = Original(
        queue,
        state,
        key,
        0,
        about.get("priority"),
        due,
        about.get("attempt"),
        about.get("createdAt"),
        about.get("expiredAt"),
        about.get("targetConsumerId"),
        about.get("dlqReason"),
        names.digest(consumer) if consumer else "",
    )
    kinds = {"ready": "inbox", "delayed": "inbox", "inflight": "processing", "archived": "archive", "dlq": "dlq"}
    return Source(entry.path, message, folders[kinds[state]])


def _leases(folder: str) -> dict[str, Mapping[str, Any]]:
    """Return what is known of leases, by the key and by the name of the file."""
    found: dict[str, Mapping[str, Any]] = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            about = _envelope(entry.path)
            if isinstance(about.get("leaseUntil"), int):
                found[entry.name.removesuffix(".json")] = about
                if isinstance(about.get("messageKey"), str):
                    found[about["messageKey"]] = about
    return found


def _envelope(path: str) -> Mapping[str, Any]:
    try:
        return envelope(read_bytes(path, LARGEST))
    except (FileNotFoundError, BadFile):
        return {}


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
