"""Bad files in every queue of the court: each is put away with its reason within one run, a good one behind
it is served, and nobody falls over, hangs or tries for ever."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.codec import read_json
from kingdom.base.errors import BadFile
from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees

SECONDS = 15.0
FUZZED = 100_000 if trees.CAMPAIGN else 250
GOOD = "evt-github-9-2026-02-07T10:00:00Z"

Maker = Callable[[Path, dict[str, Any]], None]


def _bytes(change: Callable[[bytes], bytes]) -> Maker:
    return lambda path, thing: _put(path, change(json.dumps(thing).encode()))


def _field(**fields: Any) -> Maker:
    return lambda path, thing: _put(path, json.dumps({**thing, **fields}).encode())


def _raw_field(text: str) -> Maker:
    """One more field, spelt in a way that json.dumps never would."""
    return lambda path, thing: _put(path, f"{json.dumps(thing)[:-1]}, {text}}}".encode())


def _put(path: Path, data: bytes) -> None:
    path.with_name(".draft").write_bytes(data)
    path.with_name(".draft").replace(path)


def _mode_000(path: Path, thing: dict[str, Any]) -> None:
    _put(path, json.dumps(thing).encode())
    path.chmod(0)


def _sparse(path: Path, thing: dict[str, Any]) -> None:
    draft = path.with_name(".draft")
    draft.touch()
    os.truncate(draft, 3 << 30)
    draft.replace(path)


def _socket(path: Path, thing: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def _full_folder(path: Path, thing: dict[str, Any]) -> None:
    path.mkdir()
    _put(path / "x.json", b"{}")


def _link_to_a_good_file(path: Path, thing: dict[str, Any]) -> None:
    home = next(folder for folder in path.parents if (folder / "queue").is_dir())
    target = home / "elsewhere.json"
    _put(target, json.dumps(thing).encode())
    path.symlink_to(target)


KINDS: dict[str, Maker] = {
    "truncated": _bytes(lambda data: data[: len(data) // 2]),
    "empty": _bytes(lambda data: b""),
    "blank": _bytes(lambda data: b" \n\t "),
    "zeros": _bytes(lambda data: bytes(len(data))),
    "bom": _bytes(lambda data: b"\xef\xbb\xbf" + data),
    "utf16": _bytes(lambda data: data.decode().encode("utf-16")),
    "bad-utf8": _bytes(lambda data: data.replace(b"2026", b"2\xff26")),
    "two-documents": _bytes(lambda data: data + data),
    "nan": _raw_field('"x": NaN'),
    "infinity": _raw_field('"x": [-Infinity]'),
    "huge-number": _raw_field('"x": 1e999'),
    "huge-integer": _raw_field(f'"x": {"9" * 5000}'),
    "lone-surrogate": _raw_field('"x": "\\ud800"'),
    "duplicate-key": _bytes(lambda data: data[:-1] + b", " + data[1:]),
    "deep": _raw_field(f'"x": {"[" * 200_000}{"]" * 200_000}'),
    "deep-objects": _raw_field('"x": ' + '{"a":' * 150_000 + "1" + "}" * 150_000),
    "list": _bytes(lambda data: b"[" + data + b"]"),
    "number": _bytes(lambda data: b"17"),
    "null": _bytes(lambda data: b"null"),
    "string": _bytes(lambda data: b'"hello"'),
    "id-number": _field(id=17),
    "id-null": _field(id=None),
    "id-other": _field(id="evt-somebody-else"),
    "id-path": _field(id="../../../config/king"),
    "type-number": _field(type=5),
    "type-empty": _field(type=""),
    "created-null": _field(created_at=None),
    "fifo": lambda path, thing: os.mkfifo(path),
    "socket": _socket,
    "dangling-link": lambda path, thing: path.symlink_to("nowhere.json"),
    "link": _link_to_a_good_file,
    "link-to-device": lambda path, thing: path.symlink_to("/dev/zero"),
    "link-to-itself": lambda path, thing: path.symlink_to(path.name),
    "folder": lambda path, thing: path.mkdir(),
    "full-folder": _full_folder,
    "mode-000": _mode_000,
    "sparse-3-gb": _sparse,
}
NO_FAULT_OF_AN_ORDER = ("type-number", "type-empty")
"""An order has no type; a field that nobody knows is kept."""

ONLY_FOR_ROOT: dict[str, Maker] = {
    "null-device": lambda path, thing: os.mknod(path, 0o020600, os.makedev(1, 3)),
    "zero-device": lambda path, thing: os.mknod(path, 0o020600, os.makedev(1, 5)),
}
BAD_NAMES: tuple[bytes, ...] = (
    b"no-suffix",
    b"wrong.suffix",
    b"two words.json",
    b"line\nbreak.json",
    b"semi;colon$(id).json",
    b"n\xff\xfet-utf8.json",
    "왕.json".encode(),
    b"-rf.json.json.",
    b"x" * 245 + b".json",
)


def allowed_kinds() -> dict[str, Maker]:
    return {**KINDS, **(ONLY_FOR_ROOT if trees.is_root() and _may_make_devices() else {})}


def _may_make_devices() -> bool:
    path = trees.new_folder() / "device"
    try:
        os.mknod(path, 0o020600, os.makedev(1, 3))
    except OSError:
        return False
    return True


def fill(home: Path, kind: str, thing: Callable[[str], dict[str, Any]], state: str = "pending") -> list[bytes]:
    """One file of every bad kind and name in one folder of this queue; their names."""
    folder = Places(home).folder(kind, state)
    names = []
    for what, make in allowed_kinds().items():
        if kind == "orders" and what in NO_FAULT_OF_AN_ORDER:
            continue
        name = f"bad-{what}"
        make(folder / f"{name}.json", thing(name))
        names.append(f"{name}.json".encode())
    for raw in BAD_NAMES:
        (home / "draft").write_text("{}")
        os.replace(os.fsencode(home / "draft"), os.fsencode(folder) + b"/" + raw)
    return [*names, *BAD_NAMES]


def check_events(tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)
    names = fill(home, "events", homes.event)
    homes.put(home, "events", "pending", homes.event(GOOD))
    if wrong := run_king(tree, home):
        return wrong
    if oracle.states_of(home, "events").get(GOOD) != ["dispatched"]:
        return ["the good event behind them was not served"]
    wrong = put_away(home, "events", names)
    wrong += not_touched_again(tree, home)
    trees.remove(home)
    return wrong


def check_tasks(tree: Path) -> list[str]:
    """The king puts away what no general can read."""
    home = trees.new_folder()
    homes.make(home)
    names = fill(home, "tasks", lambda name: homes.task(name, "evt-x"))
    homes.put(home, "tasks", "pending", homes.task("task-20260207-001", "evt-x"))
    wrong = run_king(tree, home)
    if oracle.states_of(home, "tasks").get("task-20260207-001") != ["pending"]:
        wrong.append("the good task does not wait any more")
    wrong += put_away(home, "tasks", names, good=1)
    trees.remove(home)
    return wrong


def check_orders(tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)
    names = fill(home, "orders", homes.order)
    homes.put(home, "orders", "pending", homes.order("ord-good", target="evt-nobody-knows"))
    wrong = run_king(tree, home)
    if oracle.states_of(home, "orders").get("ord-good") != ["done"]:
        wrong.append("the good order behind them was not carried out")
    wrong += put_away(home, "orders", names)
    trees.remove(home)
    return wrong


def check_messages(tree: Path) -> list[str]:
    home = trees.new_folder()
    homes.make(home)
    names = fill(home, "messages", homes.message)
    homes.put(home, "messages", "pending", homes.message("msg-good"))
    wrong = run_role(tree, home, "envoy")
    if oracle.states_of(home, "messages").get("msg-good") != ["sent"]:
        wrong.append("the good message behind them was not posted")
    wrong += put_away(home, "messages", names)
    trees.remove(home)
    return wrong


def check_unreadable_for_a_general(tree: Path) -> list[str]:
    """A general passes over what it cannot read, and serves the task behind it."""
    home = trees.new_folder()
    places = homes.make(home)
    for state in ("pending", "in_progress"):
        fill(home, "tasks", lambda name: homes.task(name, "evt-x"), state=state)
    homes.put(home, "tasks", "pending", homes.task("task-20260207-001", "evt-x"))
    wrong = run_role(tree, home, homes.GENERAL, "-m", "kingdom.general", homes.GENERAL)
    if not places.result("task-20260207-001").exists():
        wrong.append("the good task among them has no result")
    trees.remove(home)
    return wrong


def run_king(tree: Path, home: Path) -> list[str]:
    return run_role(tree, home, "king")


def run_role(tree: Path, home: Path, role: str, *argv: str) -> list[str]:
    began = time.monotonic()
    try:
        ended = trees.run(tree, home, [*(argv or ("-m", f"kingdom.{role}")), "--once"], timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return [f"{role} still runs after {SECONDS:g} s"]
    wrong = []
    if ended.returncode != 0:
        told = Places(home).role_log(role).read_text(errors="replace")[-400:]
        wrong.append(f"{role} ended with {ended.returncode}: {ended.stderr[-300:]} {told}")
    if "Traceback" in ended.stderr:
        wrong.append(f"a traceback: {ended.stderr[-500:]}")
    if time.monotonic() - began > SECONDS:
        wrong.append(f"{role} took {time.monotonic() - began:.0f} s")
    return wrong


def put_away(home: Path, kind: str, names: list[bytes], good: int = 0) -> list[str]:
    """Nothing bad waits, and beside everything in dead/ lies its reason."""
    places = Places(home)
    left = os.listdir(os.fsencode(places.folder(kind, "pending")))
    wrong = oracle.exactly(f"files that still wait ({left!r})", good, len(left))
    dead = set(os.listdir(places.folder(kind, "dead")))
    bodies = {name for name in dead if not name.endswith(".reason")}
    wrong += oracle.exactly(f"files put away ({kind})", len(names), len(bodies))
    for name in sorted(bodies):
        try:
            reason = read_json(places.folder(kind, "dead") / f"{name}.reason").get("reason")
        except (BadFile, FileNotFoundError) as error:
            wrong.append(f"{name}: no reason beside it: {error}")
        else:
            wrong += [] if isinstance(reason, str) and len(reason) > 4 else [f"{name}: reason {reason!r}"]
    return wrong


def not_touched_again(tree: Path, home: Path) -> list[str]:
    """A second run finds nothing to do: no retries without an end, no second reason."""
    before = {path.name: path.lstat().st_mtime_ns for path in home.glob("queue/*/*/*")}
    wrong = run_king(tree, home)
    after = {path.name: path.lstat().st_mtime_ns for path in home.glob("queue/*/*/*")}
    return wrong + [f"touched again: {name!r}" for name in after if after[name] != before.get(name)]


def check_results(tree: Path) -> list[str]:
    """An unreadable result is waited for, then fails its task; a good one beside it is judged."""
    home = trees.new_folder()
    places = homes.make(home, config={"king": {"results": {"unreadable_seconds": 0.001}}})
    kinds = allowed_kinds()
    for number, (what, make) in enumerate(kinds.items()):
        task = f"task-20260207-{number + 100}"
        homes.put(home, "tasks", "in_progress", homes.task(task, f"evt-{what}"))
        make(places.result(task), {"task_id": task, "status": "success"})
    for name in ("README", "x.tmp", "no-task.json", "..json"):
        (places.results / name).write_text("{")
    homes.put(home, "tasks", "in_progress", homes.task("task-20260207-001", "evt-good"))
    homes.write(places.result("task-20260207-001"), {"task_id": "task-20260207-001", "status": "success"})
    wrong = run_king(tree, home)
    states = oracle.states_of(home, "tasks")
    outcomes = {task["id"]: task.get("status") for task in oracle.contents(home, "tasks")}
    if states.get("task-20260207-001") != ["completed"]:
        wrong.append("the good result beside them was not judged")
    good = {"id-number", "id-null", "id-other", "id-path", "type-number", "type-empty", "created-null"}
    for number, what in enumerate(kinds):
        task = f"task-20260207-{number + 100}"
        if what in good:
            continue
        if states.get(task) != ["completed"] or outcomes.get(task) != "failed":
            wrong.append(f"the result {what}: its task lies in {states.get(task)}, {outcomes.get(task)}")
    trees.remove(home)
    return wrong


def check_fuzzed(tree: Path, count: int = FUZZED) -> list[str]:
    """Good events with random damage: each is served or put away, in runs of a few thousand."""
    dice = random.Random(20260207)
    wrong: list[str] = []
    done = 0
    while done < count and not wrong:
        batch = min(2000, count - done)
        home = trees.new_folder()
        folder = homes.make(home, config={"king": {"concurrency": {"max_soldiers": 100_000}}}).folder(
            "events", "pending"
        )
        for number in range(batch):
            name = f"evt-fuzz-{done + number}"
            (folder / f"{name}.json").write_bytes(damaged(json.dumps(homes.event(name)).encode(), dice))
        homes.put(home, "events", "pending", homes.event(GOOD))
        wrong += run_king(tree, home) if batch < 1000 else run_king(tree, home)[:1]
        left = oracle.states_of(home, "events")
        waiting = [name for name, states in left.items() if "pending" in states]
        wrong += oracle.exactly(f"events that still wait, {waiting[:3]}", 0, len(waiting))
        lost = [number for number in range(done, done + batch) if f"evt-fuzz-{number}" not in left]
        wrong += oracle.exactly(f"events that are lost, {lost[:3]}", 0, len(lost))
        wrong += [] if left.get(GOOD) == ["dispatched"] else [f"the good event lies in {left.get(GOOD)}"]
        wrong += oracle.half_visible(home)
        trees.remove(home)
        done += batch
    return wrong


def damaged(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 5, 40))):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del changed[at : at + dice.randrange(1, 20)]
            case 2:
                changed[at:at] = changed[at : at + 30]
            case 3:
                changed[at:at] = dice.choice((b"null", b"NaN", b"{}", b"[", b'"', b"\\u0000", b"-1e400", b"\x00", b","))
            case 4:
                changed[at:] = b""
            case _:
                changed[at:at] = dice.randbytes(3)
    return bytes(changed)


CHECKS = {
    "bad events": check_events,
    "bad tasks": check_tasks,
    "bad results": check_results,
    "bad orders": check_orders,
    "bad messages": check_messages,
    "bad tasks for a general": check_unreadable_for_a_general,
    "fuzzed events": check_fuzzed,
}


@pytest.mark.parametrize("what", CHECKS)
def test_bad_files_are_put_away_with_their_reason_and_good_ones_served(what: str, figure: oracle.Figure) -> None:
    began = time.monotonic()
    wrong = CHECKS[what](trees.program())
    count = len(allowed_kinds()) + len(BAD_NAMES)
    count = {
        "fuzzed events": FUZZED,
        "bad results": len(allowed_kinds()),
        "bad orders": count - len(NO_FAULT_OF_AN_ORDER),
    }.get(what, count)
    figure(f"{what}: {count} files, {len(wrong)} wrong ({time.monotonic() - began:.1f} s)")
    assert not wrong, "\n".join(wrong)
