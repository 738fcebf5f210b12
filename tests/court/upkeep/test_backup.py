"""Backup and restore: what comes back is what was there, and everything holds in it, also of a home at work."""

from __future__ import annotations

import os
import sqlite3
import stat
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.disk.atomic import Disk
from kingdom.base.disk.codec import read_json
from kingdom.base.disk.lock import Lock
from kingdom.base.errors import Collision, KingdomError
from kingdom.base.home.places import Places
from kingdom.court.upkeep import backup
from kingdom.court.upkeep.checks import CHECKS
from kingdom.court.upkeep.fsck import look
from tests.court.upkeep.homes import DAY, RUNS, healthy
from tests.faults import oracle, trees
from tests.faults import test_random_kills as kills
from tests.fixtures import Clock, event, message, put, task

NOW = Clock().now + 3600


def disk(places: Places) -> Disk:
    return Disk(places.scratch("cli"), durability="process")


def made(places: Places, folder: Path, *, secrets: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    target = folder / f"{len(os.listdir(folder))}.tar.gz"
    backup.make(places, target, disk(places), secrets=secrets, clock=lambda: NOW)
    return target


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def restored(archive: Path, home: Path) -> Places:
    home.mkdir(mode=0o700, parents=True)
    backup.unpack(archive, home / ".restore")
    places = Places(home)
    backup.put_in_place(home / ".restore", places, disk(places), None)
    return places


def contents(home: Path) -> dict[str, bytes]:
    """What a home holds, but for what belongs to processes."""
    found = {}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if path.is_file() and not name.startswith("state/cli/") and "/tmp/" not in name and path.name != ".env":
            found[name] = path.read_bytes()
    return found


def test_what_comes_back_is_what_was_there(home: Path, tmp_path: Path) -> None:
    places = healthy(home, NOW - 60)
    write_text(places.set_aside / "2026-02-01T000000Z" / "queue_tasks_pending_x", "set aside by a repair")
    archive = made(places, tmp_path / "archives")
    again = restored(archive, tmp_path / "again")
    assert contents(again.home) == contents(home)
    assert look(again, CHECKS, lambda: NOW) == []
    assert {path.lstat().st_mtime for path in again.queue.rglob("*.json")} == {NOW - 60}


@pytest.mark.parametrize("where", ["state/hall", "memory/shared"])
def test_a_database_comes_back_as_far_as_it_was_committed(home: Path, tmp_path: Path, where: str) -> None:
    places = healthy(home, NOW - 60)
    (home / where).mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(home / where / "x.db", isolation_level=None)) as at_work:
        at_work.execute("PRAGMA journal_mode = WAL")
        at_work.execute("CREATE TABLE said (what TEXT)")
        at_work.execute("INSERT INTO said VALUES ('committed')")
        at_work.execute("BEGIN")
        at_work.execute("INSERT INTO said VALUES ('not yet')")
        copy = restored(made(places, tmp_path / "archives"), tmp_path / "again").home / where / "x.db"
    assert [path.name for path in copy.parent.glob("x.db*")] == ["x.db"], "its log belongs to the process"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as again:
        assert again.execute("SELECT * FROM said").fetchall() == [("committed",)]


def test_modes_and_links_within_the_home_come_back(home: Path, tmp_path: Path) -> None:
    places = healthy(home, NOW - 60)
    write_text(home / "generals/gen-x/run", "#!/bin/sh").chmod(0o750)
    write_text(home / "memory/shared/real.md", "x")
    (home / "memory/shared/link.md").symlink_to("real.md")
    (home / "memory/shared/outside.md").symlink_to("/etc/passwd")
    (home / "memory/shared").chmod(0o750)
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again").home
    assert stat.S_IMODE((again / "generals/gen-x/run").stat().st_mode) == 0o750
    assert stat.S_IMODE((again / "memory/shared").stat().st_mode) == 0o750
    assert os.readlink(again / "memory/shared/link.md") == "real.md"
    assert not (again / "memory/shared/outside.md").is_symlink(), "it would lead out of the home"


def test_only_its_owner_can_read_it_and_nothing_is_overwritten(home: Path, tmp_path: Path) -> None:
    archive = made(healthy(home, NOW - 60), tmp_path / "archives")
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with pytest.raises(Collision):
        backup.make(Places(home), archive, disk(Places(home)), secrets=False, clock=lambda: NOW)
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert not list((home / "state/cli").glob("backup-*"))


def test_it_is_durable_as_a_whole(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, synced, sync = healthy(home, NOW - 60), [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_size), sync(fd)))
    assert made(places, tmp_path / "archives").stat().st_size in synced


@pytest.mark.parametrize("wanted", [False, True])
def test_secrets_are_in_it_only_when_asked_for(home: Path, tmp_path: Path, wanted: bool) -> None:
    places = healthy(home, NOW - 60)
    places.own("gateway").mkdir()
    for path in (places.env_file, home / ".env.bak", places.own("gateway") / "jwt-secret"):
        path.write_text("CANARY-4711")
    with tarfile.open(made(places, tmp_path / "archives", secrets=wanted)) as archive:
        files = [archive.extractfile(member) for member in archive.getmembers() if member.isfile()]
        hits = sum(b"CANARY-4711" in file.read() for file in files if file is not None)
    assert hits == (3 if wanted else 0)


def test_locks_heartbeats_and_sockets_stay_behind(home: Path, tmp_path: Path) -> None:
    places = healthy(home, NOW - 60)
    lock = Lock(places.lock("king"), "king")
    lock.acquire()
    places.heartbeat("king").write_text("{}")
    os.mkfifo(places.run / "roles.sock")
    (places.wanted_folder / "king").write_text("down\n")
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again")
    lock.release()
    assert not again.lock("king").exists()
    assert not again.heartbeat("king").exists()
    assert [path.name for path in again.run.iterdir()] == ["wanted"]
    assert (again.wanted_folder / "king").read_text() == "down\n"


MEANWHILE: dict[str, Callable[[Places], object]] = {
    "an event becomes a task": lambda at: (
        put(at.home, "events", "dispatched", **event("evt-4", task_id="task-20260207-004", letters={"start": "msg-x"})),
        (at.folder("events", "pending") / "evt-4.json").unlink(),
        put(at.home, "tasks", "pending", **task("task-20260207-004", event_id="evt-4")),
        put(at.home, "messages", "pending", **message("msg-x", task_id="task-20260207-004", dedup_key="x")),
    ),
    "a task moves on": lambda at: (at.folder("tasks", "in_progress") / "task-20260207-003.json").rename(
        at.folder("tasks", "completed") / "task-20260207-003.json"
    ),
    "a message is sent": lambda at: (at.folder("messages", "sent") / f"msg-{DAY}-001.json").touch(),
    "an event comes and becomes a task": lambda at: (
        put(at.home, "events", "dispatched", **event("evt-5", task_id="task-20260207-005", letters={})),
        put(at.home, "tasks", "pending", **task("task-20260207-005", event_id="evt-5")),
    ),
    "a task is made, and its general writes of it": lambda at: (
        put(at.home, "events", "dispatched", **event("evt-4", task_id="task-20260207-004", letters={})),
        (at.folder("events", "pending") / "evt-4.json").unlink(),
        put(at.home, "tasks", "pending", **task("task-20260207-004", event_id="evt-4")),
        put(at.home, "messages", "pending", **message("msg-y", task_id="task-20260207-004")),
        at.prompt("task-20260207-004").write_text("Do it"),
    ),
}


@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("moment", ["events", "tasks", "messages"])
def test_what_happens_between_two_files_leaves_a_home_in_which_everything_holds(
    home: Path, tmp_path: Path, what: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = healthy(home, NOW - 60)
    listed, happened = backup._of_queue, []

    def then(at: Places, kind: str) -> Iterator[Path]:
        yield from listed(at, kind)
        if kind == moment and not happened:
            happened.append(MEANWHILE[what](at))

    monkeypatch.setattr(backup, "_of_queue", then)
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again")
    assert look(again, CHECKS, lambda: NOW) == []
    events = {
        path.stem
        for state in ("pending", "dispatched", "completed")
        for path in again.folder("events", state).iterdir()
    }
    assert events >= {"evt-1", "evt-2", "evt-3", "evt-4"}
    tasks = [read_json(path) for path in again.queue.glob("tasks/*/*.json")]
    for one in tasks:
        of_event = list(again.queue.glob(f"events/*/{one['event_id']}.json"))
        assert [read_json(path)["task_id"] for path in of_event] == [one["id"]], "its event knows it"
    told = {read_json(path)["task_id"] for path in again.queue.glob("messages/*/*.json")}
    assert told <= {task["id"] for task in tasks}, "nobody is told of a task that is not there"
    assert {path.stem for path in again.prompts.iterdir()} <= {task["id"] for task in tasks}
    assert not again.set_aside.exists(), "what was taken out of the copy is not in it"


def test_what_moves_while_its_queue_is_copied_is_copied_once_as_it_was_later(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, copied = healthy(home, NOW - 60), []
    ended = places.folder("tasks", "completed") / f"{RUNS}.json"
    listed = backup._of_queue

    def while_it_moves(at: Places, kind: str) -> Iterator[Path]:
        for path in listed(at, kind):
            copied.append(path)
            yield path
            if path.parent.name == "in_progress":
                path.rename(ended)

    monkeypatch.setattr(backup, "_of_queue", while_it_moves)
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again")
    assert [path.parent.name for path in copied if path.stem == RUNS] == ["in_progress", "completed"], (
        "at the first try"
    )
    assert [path.parent.name for path in again.queue.glob(f"tasks/*/{RUNS}.json")] == ["completed"]


def test_a_scheduled_run_that_began_after_the_index_was_copied_is_noted_in_it(home: Path, tmp_path: Path) -> None:
    places, due = healthy(home, NOW - 60), "2026-02-07T09:00:00Z"
    run = task("task-20260207-009", event_id="schedule-morning", scheduled_for=due)
    put(home, "tasks", "pending", **run)
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again")
    key = f"{run['target_general']}:morning:{due}"
    assert again.replay_index.read_text().splitlines()[-1] == f"20260207 {key} task-20260207-009"


def test_what_lies_in_two_states_comes_back_in_both(home: Path, tmp_path: Path) -> None:
    places = healthy(home, NOW - 60)
    once_more = places.folder("events", "pending") / "evt-1.json"
    once_more.write_bytes((places.folder("events", "completed") / "evt-1.json").read_bytes())
    again = restored(made(places, tmp_path / "archives"), tmp_path / "again")
    assert sorted(path.parent.name for path in again.queue.glob("events/*/evt-1.json")) == ["completed", "pending"]


def test_a_copy_with_a_damage_that_the_home_has_not_is_made_again_and_then_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, tries = healthy(home, NOW - 60), []
    damaged = places.folder("orders", "pending") / "order-9.json"
    listed = backup._of_queue

    def damaged_while_it_is_copied(at: Places, kind: str) -> Iterator[Path]:
        if kind == "orders":
            tries.append(kind)
            damaged.write_text("{")
        yield from listed(at, kind)
        damaged.unlink(missing_ok=True)

    monkeypatch.setattr(backup, "_of_queue", damaged_while_it_is_copied)
    with pytest.raises(backup.CannotCopy, match=r"after 5 tries; .*: queue/orders/pending/order-9\.json: "):
        made(places, tmp_path / "archives")
    assert len(tries) == backup.TRIES
    assert not list((tmp_path / "archives").iterdir())
    assert not list(places.own("cli").glob("backup-*")), "nothing is left of it"


def test_what_is_no_backup_is_refused(home: Path, tmp_path: Path) -> None:
    for name, content in {"text": b"hello", "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(backup.NotABackup):
            backup.unpack(tmp_path / name, tmp_path / f"{name}.d")


def test_an_archive_that_points_outside_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        (tmp_path / "x").write_text("x")
        archive.add(tmp_path / "x", "../outside")
    with pytest.raises(KingdomError):
        backup.unpack(tmp_path / "evil.tar.gz", tmp_path / "into")
    assert not (tmp_path / "outside").exists()


def test_a_home_at_work_comes_back_and_goes_on(home: Path, tmp_path: Path, record_property: Callable[..., Any]) -> None:
    """Four roles at work on events; the restored home serves what was not served, and nothing twice."""
    places = kills.prepare(home)
    events, archives = 12, []
    with kills.court(home) as roles:
        roles.raise_all()
        for number in range(events):
            kills.tell(places, number)
            if number % 4 == 3:
                target = tmp_path / f"{number}.tar.gz"
                backup.make(places, target, disk(places), secrets=False)
                archives.append(target)
        roles.stop()
    wrong = []
    for archive in archives:
        again = restored(archive, tmp_path / f"home-{archive.stem}")
        wrong += oracle.by_fsck(again.home)
    told = len(oracle.states_of(again.home, "events"))
    with kills.court(again.home) as roles:
        roles.raise_all()
        is_done = trees.until(lambda: (roles.raise_all(), kills.ended(again))[1] == told and kills.quiet(again), 120)
        roles.stop()
    tasks = Counter(task["event_id"] for task in oracle.contents(again.home, "tasks"))
    wrong += oracle.by_fsck(again.home)
    record_property(
        "figure", f"backups of a home at work: {len(archives)}, {told} events in the last, {len(wrong)} wrong"
    )
    assert is_done
    assert not wrong, "\n".join(wrong)
    assert tasks == Counter({f"evt-{number}": 1 for number in range(told)})
