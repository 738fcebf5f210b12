"""Bad files in requests/: each is parked with its reason within one run, who can be told is told, and the good
request behind them is served. Names from outside never become paths."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadFile
from kingdom.mq.mailbox_folders import check_client_id
from tests.faults import oracle, trees
from tests.faults.named_paths import EVIL
from tests.faults.test_bad_files import BAD_NAMES, Maker, allowed_kinds, damaged

FUZZED = 100_000 if trees.CAMPAIGN else 600
AT_ONCE = 5_000
SECONDS = 60
MANAGER = ("-m", "kingdom.mailbox", "--once")
NOT_OF_REQUESTS = {"id-number", "id-null", "id-other", "id-path", "type-number", "type-empty", "created-null"}
"""These fields mean nothing in a request."""


def _without(field: str) -> Maker:
    return lambda path, thing: _put(path, {key: part for key, part in thing.items() if key != field})


def _with(**fields: Any) -> Maker:
    return lambda path, thing: _put(path, {**thing, **fields})


def _put(path: Path, thing: Any) -> None:
    path.with_name(".draft").write_text(json.dumps(thing))
    path.with_name(".draft").replace(path)


OWN_KINDS: dict[str, Maker] = {
    **{f"without-{field}": _without(field) for field in ("requestId", "clientId", "command")},
    **{
        f"{field}-{what}": _with(**{field: value})
        for field in ("requestId", "clientId", "command")
        for what, value in (("number", 7), ("null", None), ("list", []), ("empty", ""), ("object", {}))
        if (field, what) != ("command", "empty")
    },
    "client-path": _with(clientId="../../up"),
    "client-slash": _with(clientId="a/b"),
    "client-dot": _with(clientId=".hidden"),
    "client-long": _with(clientId="x" * 251),
    "id-long": _with(requestId="x" * 201),
    "deadline-text": _with(deadlineMs="soon"),
    "deadline-true": _with(deadlineMs=True),
    "timestamp-text": _with(timestampMs="now"),
}


def request(name: str, command: str = "health", client: str = "me", **payload: Any) -> dict[str, Any]:
    return {"requestId": name, "clientId": client, "command": command, "payload": payload}


def home_with_mailbox() -> tuple[Path, Path]:
    home = trees.new_folder()
    root = home / "queue" / "mailbox"
    for folder in (home / "config", root / "requests"):
        folder.mkdir(mode=0o700, parents=True)
    (home / "config" / "mq.yaml").write_text('{"backend": "filesystem", "durability": "process"}')
    return home, root


def serve_once(tree: Path, home: Path) -> list[str]:
    began = time.monotonic()
    ended = trees.run(tree, home, MANAGER, timeout=2 * SECONDS)
    wrong = []
    if ended.returncode != 0 or "Traceback" in ended.stderr:
        log = (home / "logs" / "mailbox.log").read_text(errors="replace")[-600:]
        wrong.append(f"the manager ended with {ended.returncode}: {ended.stderr[-400:]} {log}")
    if (took := time.monotonic() - began) > SECONDS:
        wrong.append(f"the manager took {took:.0f} s")
    return wrong


def answers(root: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in root.glob("responses/*/*.json")}


def parked(root: Path, expected: int | None = None) -> list[str]:
    """Nothing but the unspeakable waits, and beside everything in dead/ lies its reason."""
    left = os.listdir(os.fsencode(root / "requests"))
    wrong = oracle.exactly(f"files that still wait ({left[:3]!r})", 0, len(left))
    dead = set(os.listdir(root / "dead"))
    bodies = sorted(name for name in dead if not name.endswith(".reason"))
    if expected is not None:
        wrong += oracle.exactly("files parked", expected, len(bodies))
    for name in bodies:
        try:
            reason = read_json(root / "dead" / f"{name}.reason").get("reason")
        except (BadFile, FileNotFoundError) as error:
            wrong.append(f"{name}: no reason beside it: {error}")
        else:
            wrong += [] if isinstance(reason, str) and len(reason) > 4 else [f"{name}: reason {reason!r}"]
    return wrong


def kinds() -> dict[str, Maker]:
    foreign = {what: make for what, make in allowed_kinds().items() if what not in NOT_OF_REQUESTS}
    return {**foreign, **OWN_KINDS}


def check_kinds(tree: Path) -> list[str]:
    home, root = home_with_mailbox()
    for what, make in kinds().items():
        make(root / "requests" / f"bad-{what}.json", {**request(f"bad-{what}"), "since": "2026"})
    for raw in BAD_NAMES:
        (home / "draft").write_text("{}")
        os.replace(os.fsencode(home / "draft"), os.fsencode(root / "requests") + b"/" + raw)
    _put(root / "requests" / "good.json", request("good"))
    wrong = serve_once(tree, home)
    wrong += parked(root, len(kinds()) + len(BAD_NAMES))
    told = answers(root)
    if not told.get("good", {}).get("ok"):
        wrong.append("the good request behind them was not served")
    wrong += [
        f"{name} got an answer without an error" for name, answer in told.items() if name != "good" and answer["ok"]
    ]
    can_be_told = {"bad-command-number", "bad-deadline-text", "bad-duplicate-key", "bad-nan"}
    wrong += [f"{name} was not told" for name in sorted(can_be_told - told.keys())]
    before = {path: path.lstat().st_mtime_ns for path in (root / "dead").iterdir()}
    wrong += serve_once(tree, home)
    after = {path: path.lstat().st_mtime_ns for path in (root / "dead").iterdir()}
    wrong += [f"touched again: {path.name!r}" for path in after if after[path] != before.get(path)]
    trees.remove(home)
    return wrong


def check_fuzzed(tree: Path, count: int = FUZZED) -> list[str]:
    """Publishes with random damage: each is served or parked, and the manager goes on."""
    dice = random.Random(13)
    wrong: list[str] = []
    for start in range(0, count, AT_ONCE):
        home, root = home_with_mailbox()
        batch = range(start, min(start + AT_ONCE, count))
        ids = {}
        for number in batch:
            sound = request(f"r{number}", "publish", queue="q", message={"n": number}, priority=number % 3)
            body = damaged(json.dumps(sound).encode(), dice)
            (root / "requests" / f"r{number}.json").write_bytes(body)
            ids[number] = said_id(body)
        _put(root / "requests" / "good.json", request("good"))
        wrong += serve_once(tree, home) if count < AT_ONCE else serve_once(tree, home)[:0]
        wrong += parked(root)
        told = answers(root)
        dead = {name for name in os.listdir(root / "dead") if not name.endswith(".reason")}
        lost = [number for number in batch if ids[number] not in told and f"r{number}.json" not in dead]
        wrong += oracle.exactly(f"requests without a trace, {lost[:3]}", 0, len(lost))
        wrong += [] if told.get("good", {}).get("ok") else ["the good request behind them was not served"]
        trees.remove(home)
        if wrong:
            break
    return wrong


def said_id(body: bytes) -> str:
    """The id under which a request is answered: the one in it, whatever its file is called."""
    try:
        return str(json.loads(body)["requestId"])
    except (ValueError, KeyError, TypeError):
        return ""


def check_names(tree: Path) -> list[str]:
    """The evil names as clientId, requestId, queue, consumer and key, in a home inside a folder that is watched."""
    jail = trees.new_folder()
    home, root = home_with_mailbox()
    inside = jail / "a" / "b" / "home"
    inside.parent.mkdir(parents=True, mode=0o700)
    os.rename(home, inside)
    root = inside / "queue" / "mailbox"
    outside = {path for path in jail.rglob("*") if inside not in path.parents}
    for number, name in enumerate(EVIL):
        speakable = name.encode("utf-8", "replace").decode()
        for what, sound in requests_named(f"n{number}", speakable).items():
            _put(root / "requests" / f"n{number}-{what}.json", sound)
    wrong = serve_once(tree, inside)
    wrong += parked(root)
    wrong += [f"outside: {path}" for path in jail.rglob("*") if inside not in path.parents and path not in outside]
    for path in (*root.glob("responses/*"), *root.glob("responses/*/*.json")):
        try:
            check_client_id(path.name)
        except Exception as error:  # noqa: BLE001 - whatever it says is the finding
            wrong.append(f"a strange name: {path} ({error})")
    store = inside / "queue" / "mq"
    wrong += [f"not below the store: {path}" for path in store.rglob("*") if not path.resolve().is_relative_to(store)]
    trees.remove(jail)
    return wrong


def requests_named(number: str, name: str) -> dict[str, dict[str, Any]]:
    key = f"msg:{name}:018bcfe5-6800-8000-8003-0126b2138fe0"
    return {
        "client": request(f"{number}-client", client=name),
        "request": {**request(f"{number}-request"), "requestId": name},
        "queue": request(f"{number}-queue", "publish", queue=name, message="x", targetConsumerId=name, type=name),
        "consume": request(f"{number}-consume", "consume", queue=name, consumerId=name),
        "ack": request(f"{number}-ack", "ack", messageKey=key, leaseId=name),
        "reprocess": request(f"{number}-reprocess", "reprocess", messageKey=name),
        "command": request(f"{number}-command", name),
    }


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "bad requests": check_kinds,
    "fuzzed requests": check_fuzzed,
    "evil names": check_names,
}


@pytest.mark.parametrize("what", CHECKS)
def test_what_is_no_request_is_parked_and_later_ones_are_served(what: str, figure: oracle.Figure) -> None:
    began = time.monotonic()
    wrong = CHECKS[what](trees.program())
    counts = {"bad requests": len(kinds()) + len(BAD_NAMES), "fuzzed requests": FUZZED, "evil names": 7 * len(EVIL)}
    figure(f"mailbox, {what}: {counts[what]} files, {len(wrong)} wrong ({time.monotonic() - began:.1f} s)")
    assert not wrong, "\n".join(wrong[:20])
