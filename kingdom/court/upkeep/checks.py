"""The invariants of a home: one row of CHECKS for each, in the order in which they are repaired."""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.atomic import is_there, make_folder, names_in
from kingdom.base.disk.codec import read_bytes, read_json, to_json
from kingdom.base.errors import BadFile, BadHome, BadInput, BadName
from kingdom.base.home.places import CHECKPOINT, SESSION_ID, SOLDIER_ID, Places, check_name, is_hidden
from kingdom.base.home.states import MOVES
from kingdom.base.records import foreign, kept, notes, sessions
from kingdom.base.records.messages import Message, alert
from kingdom.base.records.sessions import Sessions
from kingdom.base.times import stamp
from kingdom.court.rules.schedules import SCHEDULED
from kingdom.court.upkeep import versions
from kingdom.court.upkeep.fsck import (
    ASIDE,
    LITTER_RULE,
    STATE_RULE,
    Check,
    FsckFault,
    Mender,
    StateFiles,
    View,
    set_aside,
    unfinished,
    unfit_files,
)
from kingdom.court.upkeep.retention import task_of_result, task_of_soldier_log

KINDS = {"events": "event", "tasks": "task", "messages": "message", "orders": "order"}
ENDED_WITH_RESULT = ("success", "failed", "needs_human")
ONE_STATE = {
    "events": ("dispatched", "completed"),
    "tasks": ("pending", "in_progress", "completed"),
    "messages": ("sent", "failed"),
}
"""States of which a record is in one at most. A pending event or message may have come a second time."""
SEQUENCES = (
    ("king", "task-seq", "tasks", "task-"),
    ("king", "msg-seq", "messages", "msg-"),
    ("chamberlain", "msg-seq", "messages", "msg-{day}-chamberlain-"),
)
NUMBERED = re.compile(r"(\d{8}):(\d{1,12})\s*")


# What can be read.


def _unfit(view: View) -> Iterator[FsckFault]:
    for kind, state in view.folders("dead"):
        for name in view.names(kind, state):
            path = view.places.folder(kind, state) / name
            if why := _why_unfit(path, KINDS[kind]):
                yield FsckFault(path, why)


def _why_unfit(path: Path, kind: str) -> str:
    """Return what is wrong with a file of a queue; "" when nothing is, or when it is gone."""
    try:
        if not path.name.endswith(".json"):
            return "its name does not end in .json"
        check_name("file", path.name.removesuffix(".json"))
        record = foreign.checked(kind, read_json(path))
    except FileNotFoundError:
        return ""
    except BadFile as error:
        return str(error.facts["why"])
    except BadInput as error:
        return str(error)
    return "" if record["id"] == path.stem else f"its id is {record['id']!r}"


def _park(mender: Mender, fault: FsckFault) -> None:
    mender.park(fault.path, fault.what)


def _unfit_results(view: View) -> Iterator[FsckFault]:
    for name in names_in(view.places.results):
        path = view.places.results / name
        if name.startswith(TASK) and (why := _why_unfit_result(path)):
            yield FsckFault(path, why)


def _why_unfit_result(path: Path) -> str:
    if path.name.endswith((SESSION_ID, SOLDIER_ID)):
        return "" if stat.S_ISREG(_mode(path) or stat.S_IFREG) else "not a regular file"
    if not path.name.endswith(".json"):
        return "an unknown file"
    try:
        task = read_json(path).get("task_id")
    except FileNotFoundError:
        return ""
    except BadFile as error:
        return str(error.facts["why"])
    is_named = task == task_of_result(path.name) or (task is None and path.name.endswith(CHECKPOINT))
    return "" if is_named else f"it is of {task!r}"


def _mode(path: Path) -> int | None:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


STATE_FILES: StateFiles = {
    lambda at: [at.sessions]: list,
    lambda at: [at.resources, at.dashboard, at.budgets]: dict,
    lambda at: at.conversations(): object,
    lambda at: sorted(
        {path for own in at.scratches() for path in own.parent.glob("*.json")} - {*at.conversations()}
    ): dict,
    lambda at: sorted(at.answers.glob("*.json")): dict,
}
"""The small files that roles keep, each with what JSON it holds."""


def _unfit_state(view: View) -> Iterator[FsckFault]:
    return unfit_files(view, STATE_FILES)


def _unexplained(view: View) -> Iterator[FsckFault]:
    for kind in MOVES:
        names = set(view.names(kind, "dead"))
        for name in sorted(names):
            path = view.places.folder(kind, "dead") / name
            is_reason = name.endswith(".reason") and name.removesuffix(".reason") in names
            if not is_reason and f"{name}.reason" not in names and not name.endswith(".reason") and is_there(path):
                yield FsckFault(path, "no reason beside it", kind)


def _explain(mender: Mender, fault: FsckFault) -> None:
    note = {
        "file": fault.path.name,
        "from": fault.about,
        "reason": "unknown: none was kept",
        "buried_at": stamp(mender.now),
    }
    mender.disk.create(fault.path.with_name(f"{fault.path.name}.reason"), to_json(note))


def _litter(view: View) -> Iterator[FsckFault]:
    places = view.places
    folders = [*(places.folder(kind, state) for kind, state in view.folders()), places.results]
    yield from unfinished(view, folders)
    yield from unfinished(view, places.scratches(), is_scratch=True)


# Where things lie.


def _doubled(view: View) -> Iterator[FsckFault]:
    for kind, states in ONE_STATE.items():
        found: dict[str, list[str]] = defaultdict(list)
        for state in states:
            for name in view.names(kind, state):
                found[name].append(state)
        for name, there in found.items():
            paths = [view.places.folder(kind, state) / name for state in there]
            if len(paths) > 1 and all(map(is_there, paths)):
                yield FsckFault(paths[0], f"it lies in {' and in '.join(there)}")


def _one_task(view: View) -> Iterator[FsckFault]:
    """Check that an event or scheduled run has one task, besides those that a person had retried."""
    again = {str(record.get("made")) for _, record in view.records("orders", "pending", "done")}
    tasks = list(view.records("tasks", "pending", "in_progress", "completed"))
    for _, task in tasks:
        retries = task.get("retried_as")
        again.update(retries if isinstance(retries, list) else ())
    requeued = {
        path.stem
        for path, event in view.records("events", "pending", "dispatched", "completed")
        if event.get("requeued_by")
    }
    by_cause: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path, task in tasks:
        event, due = str(task.get("event_id")), task.get("scheduled_for")
        if (
            path.stem in again
            or event in requeued
            or task.get("requeued_by")
            or (event.startswith(SCHEDULED) and not due)
        ):
            continue
        by_cause[event, str(due or "")].append(path)
    for (event, _), paths in by_cause.items():
        # A task that has moved between two listings is seen twice.
        there = {path.stem: path for path in paths}
        if len(there) > 1:
            first, *further = sorted(there)
            yield from (FsckFault(there[name], f"{event} became {first} already") for name in further)


def _one_message(view: View) -> Iterator[FsckFault]:
    by_cause: dict[str, dict[str, Path]] = defaultdict(dict)
    for path, message in view.records("messages", "pending", "sent", "failed"):
        if isinstance(key := message.get("dedup_key"), str):
            by_cause[key][path.stem] = path
    for key, paths in by_cause.items():
        if len(paths) > 1:
            pending = sorted(name for name, path in paths.items() if path.parent.name == "pending") or sorted(paths)[1:]
            keeps = next(name for name in sorted(paths, key=lambda name: (name in pending, name)))
            yield from (FsckFault(paths[name], f"{keeps} says the same ({key})") for name in pending if name != keeps)


def _park_if_pending(mender: Mender, fault: FsckFault) -> None:
    if fault.path.parent.name == "pending":
        mender.park(fault.path, fault.what)
    else:
        raise BadFile(path=fault.path, why="people have read it")


def _lost_tasks(view: View) -> Iterator[FsckFault]:
    for path, event in view.records("events", "dispatched"):
        task = event.get("task_id")
        if isinstance(task, str) and not view.is_made("tasks", task) and is_there(path):
            yield FsckFault(path, f"its task {task} is gone; the king ends it when he runs")


def _ended_early(view: View) -> Iterator[FsckFault]:
    for path, event in view.records("events", "completed"):
        task = event.get("task_id")
        if not isinstance(task, str) or event.get("requeued_by") or event.get("status") == "discarded":
            continue
        for state in ("pending", "in_progress"):
            with suppress(FileNotFoundError, BadFile, BadName):
                if read_json(view.places.queue_file("tasks", state, task)).get("outcome") is None:
                    yield FsckFault(path, f"its task {task} has not ended: it is {state.replace('_', ' ')}")


# What was promised.


def _promised(view: View) -> Iterator[FsckFault]:
    """Check that every message whose id is noted in its cause has been written."""
    causes = [("events", "dispatched"), ("events", "completed"), ("tasks", "completed")]
    for kind, state in causes:
        for path, cause in view.records(kind, state):
            letters = cause.get("letters")
            for part, id in letters.items() if isinstance(letters, dict) else ():
                if view.is_young(cause.get("created_at"), "queue_days") and not view.is_made("messages", id):
                    about = path.stem if kind == "tasks" else str(cause.get("task_id") or path.stem)
                    place = view.places.folder("messages", "pending") / f"{id}.json"
                    yield FsckFault(place, f"{path.stem} names it ({part}), and there is no such message", about)


def _say_it_was_lost(mender: Mender, fault: FsckFault) -> None:
    """Write the message anew; what it said is not known any more."""
    check_name("message", id := fault.path.stem)
    text = f"a message about {fault.about} was lost; `kingdom why {fault.about}` tells how it stands"
    lost: Message = alert(id, text, None, stamp(mender.now))
    mender.queues.messages.create([replace(lost, task_id=fault.about, dedup_key=f"{fault.about}:lost:{id}")])


def _last_words(view: View) -> Iterator[FsckFault]:
    for path, task in view.records("tasks", "completed"):
        if task.get("outcome") in ENDED_WITH_RESULT and task.get("letters") == {}:
            yield FsckFault(path, "it has ended, and people got no message")


def _results(view: View) -> Iterator[FsckFault]:
    for path, task in view.records("tasks", "completed"):
        is_ours = task.get("outcome") in ENDED_WITH_RESULT and view.was_changed_lately(path, "results_days")
        if is_ours and not is_there(view.places.results / path.name) and not task.get("cancelled_by_order"):
            yield FsckFault(view.places.results / path.name, f"the result of {path.stem} is gone")


def _questions(view: View) -> Iterator[FsckFault]:
    for path, task in view.records("tasks", "completed"):
        if task.get("outcome") != "needs_human" or not view.was_changed_lately(path, "results_days"):
            continue
        checkpoint = view.places.results / f"{path.stem}{CHECKPOINT}"
        if not is_there(checkpoint) and not is_there(view.places.answers / path.name):
            yield FsckFault(checkpoint, f"{path.stem} waits for an answer that could not be used", path.stem)


def _checkpoint_again(mender: Mender, fault: FsckFault) -> None:
    task = mender.queues.tasks.read("completed", fault.about)
    question: Any = None
    with suppress(FileNotFoundError, BadFile):
        question = read_json(mender.places.result(task.id)).get("question")
    known: dict[str, Any] = {
        "task_id": task.id,
        "thread_task_id": task.thread_task_id,
        "target_general": task.target_general,
    }
    known |= {"type": task.type, "matter": task.subject, "repo": task.repo, "payload": dict(task.payload)}
    session = notes.session_id(mender.places, task.id)
    mender.disk.create(fault.path, to_json({**known, "session_id": session, "question": question}))


# What belongs to nothing.


BELONGINGS: tuple[tuple[str, Callable[[Places], list[Path]], Callable[[str], str]], ...] = (
    ("a result", lambda at: [at.results], task_of_result),
    ("a prompt", lambda at: [at.prompts], lambda name: name.removesuffix(".md")),
    ("the folder of a soldier", lambda at: [at.soldiers], str),
    ("the control folder of a soldier", lambda at: sorted({folder.parent for folder in at.control_folders()}), str),
    ("a workspace", lambda at: [folder for folder in at.workspaces.glob("gen-*") if folder.is_dir()], kept.task_of),
    ("the output of a soldier", lambda at: [at.session_logs], task_of_soldier_log),
    ("the note of a cancellation", lambda at: [at.cancelled("any").parent], lambda name: name.removesuffix(".json")),
)
"""What belongs to a task: what it is, in which folders it lies, and whose it is by its name."""
TASK = "task-"
"""How the ids of tasks begin. What has another name is another program's: a general may keep a clone of each repository
in its workspace, and instructions beside it."""


def _orphans(view: View) -> Iterator[FsckFault]:
    for what, folders, task_of in BELONGINGS:
        for folder in folders(view.places):
            for name in names_in(folder):
                path, task = folder / name, task_of(name)
                if is_hidden(name) or not task.startswith(TASK):
                    continue
                if task in view.known_tasks or view.is_made("tasks", task):
                    continue
                if view.was_changed_lately(path, "queue_days"):
                    yield FsckFault(path, f"{what}, and there is no task {task or name}")


def _rows_of_nothing(view: View) -> Iterator[FsckFault]:
    for row in sessions.read(view.places):
        is_of_general = (row.general or "gen-").startswith("gen-")
        if sessions.is_ours(row) and is_of_general and not view.is_made("tasks", row.task_id):
            yield FsckFault(view.places.sessions, f"its soldier {row.soldier} has no task {row.task_id}", row.task_id)


def _strike_row(mender: Mender, fault: FsckFault) -> None:
    rows = Sessions(mender.places, mender.disk)
    rows.remove(fault.about)
    rows.write()


def _receipts(view: View) -> Iterator[FsckFault]:
    for folder in view.places.posting():
        for name in names_in(folder):
            path = folder / name
            is_ours = not is_hidden(name) and not view.is_made("messages", path.stem)
            if is_ours and view.was_changed_lately(path, "queue_days"):
                yield FsckFault(path, f"there is no message {path.stem}")


# Numbers and indexes.


def _numbers(view: View) -> Iterator[FsckFault]:
    for role, name, kind, prefix in SEQUENCES:
        path = view.places.own(role) / name
        try:
            text = read_bytes(path, 4096).decode("ascii", "replace")
        except FileNotFoundError:
            continue
        except BadFile as error:
            yield FsckFault(path, str(error.facts["why"]), f"{kind} {prefix}")
            continue
        used, noted = _highest(view, kind, prefix), NUMBERED.fullmatch(text)
        if noted is None and text.strip() != "0":
            yield FsckFault(path, "it holds no date and number", f"{kind} {prefix}")
        elif noted is not None and used is not None and (noted[1], int(noted[2])) < used:
            yield FsckFault(path, f"it says {text.strip()}, and {used[0]}-{used[1]:03d} is in use", f"{kind} {prefix}")


def _highest(view: View, kind: str, prefix: str) -> tuple[str, int] | None:
    before, _, after = prefix.partition("{day}")
    shape = re.compile(rf"{re.escape(before)}(\d{{8}}){re.escape(after or '-')}(\d{{1,12}})\.json")
    found = (shape.fullmatch(name) for state in MOVES[kind] for name in view.names(kind, state))
    return max(((match[1], int(match[2])) for match in found if match), default=None)


def _number_anew(mender: Mender, fault: FsckFault) -> None:
    kind, _, prefix = fault.about.partition(" ")
    used = _highest(View(mender.places, mender.now), kind, prefix)
    if used is None:
        mender.set_aside(fault.path)
    else:
        if not stat.S_ISREG(_mode(fault.path) or stat.S_IFREG):
            mender.set_aside(fault.path)
        mender.disk.rewrite(fault.path, f"{used[0]}:{used[1]:03d}\n".encode())


def _index_lines(view: View) -> Iterator[FsckFault]:
    mode = _mode(view.places.replay_index)
    if mode is not None and not stat.S_ISREG(mode):
        yield FsckFault(view.places.replay_index, "it is not a regular file", "other")
        return
    *lines, last = view.replays or [b""]
    for number, line in enumerate(lines, 1):
        parts = line.split(b" ")
        if len(parts) != 3 or not parts[0].isdigit():
            yield FsckFault(view.places.replay_index, f"line {number} is damaged")
    if last:
        yield FsckFault(view.places.replay_index, "its last line has no end")


def _drop_damaged(mender: Mender, fault: FsckFault) -> None:
    if fault.about == "other":
        mender.set_aside(fault.path)
        return
    lines = View(mender.places, mender.now).replays[:-1]
    sound = [line for line in lines if line.count(b" ") == 2 and line.split(b" ")[0].isdigit()]
    mender.disk.rewrite(mender.places.replay_index, b"".join(line + b"\n" for line in sound))


def _unindexed(view: View) -> Iterator[FsckFault]:
    """Check that each event that our king dispatched stands in the replay index."""
    for path, event in view.records("events", "dispatched", "completed"):
        task, letters = event.get("task_id"), event.get("letters")
        if isinstance(task, str) and letters and event.get("status") != "discarded" and path.stem not in view.replayed:
            yield FsckFault(path, f"it became {task}, and is not in the index: it would be handled again", task)


def _index(mender: Mender, fault: FsckFault) -> None:
    day = stamp(mender.now)[:10].replace("-", "")
    mender.disk.append(mender.places.replay_index, f"{day} {fault.path.stem} {fault.about}\n".encode(), sync=True)


# Who may read and write.


def _open_folders(view: View) -> Iterator[FsckFault]:
    places = view.places
    folders = [places.queue, places.state, places.logs, places.memory, places.workspaces, places.run, places.results]
    folders += [places.prompts, places.soldiers, places.session_logs]
    folders += [places.folder(kind, state) for kind, state in view.folders()]
    for folder in folders:
        mode = _mode(folder)
        if mode is not None and stat.S_ISDIR(mode) and mode & 0o077:
            yield FsckFault(folder, f"others may enter it (mode {stat.S_IMODE(mode):o})")


def _open_secrets(view: View) -> Iterator[FsckFault]:
    for path in view.places.secrets():
        mode = _mode(path)
        if mode is not None and stat.S_ISREG(mode) and mode & 0o077:
            yield FsckFault(path, f"others may read it (mode {stat.S_IMODE(mode):o})")


def _unknown_version(view: View) -> Iterator[FsckFault]:
    """Check that `up` will not refuse the home. It is not repaired: what is guessed may damage it."""
    try:
        versions.refuse_newer(view.places)
    except BadHome as error:
        yield FsckFault(view.places.version, str(error.facts["why"]))


def _owners(view: View) -> Iterator[FsckFault]:
    places = view.places
    for folder in (places.home, places.queue, places.state, places.logs, places.env_file):
        with suppress(FileNotFoundError):
            if (owner := os.lstat(folder).st_uid) != os.geteuid():
                yield FsckFault(folder, f"it belongs to uid {owner}")


def _close(mender: Mender, fault: FsckFault) -> None:
    os.chmod(fault.path, stat.S_IMODE(os.lstat(fault.path).st_mode) & 0o700)


def _missing_folders(view: View) -> Iterator[FsckFault]:
    for folder in view.places.folders():
        mode = _mode(folder)
        if mode is None:
            yield FsckFault(folder, "it is missing")
        elif not stat.S_ISDIR(mode):
            yield FsckFault(folder, "it is no folder")


def _make(mender: Mender, fault: FsckFault) -> None:
    if is_there(fault.path):
        mender.set_aside(fault.path)
    make_folder(fault.path)


def _locks(view: View) -> Iterator[FsckFault]:
    for path in view.places.locks():
        mode = _mode(path)
        if mode is not None and not stat.S_ISREG(mode):
            yield FsckFault(path, "it is not a regular file, so it cannot be locked")


def _wanted(view: View) -> Iterator[FsckFault]:
    for name in names_in(view.places.wanted_folder):
        path = view.places.wanted_folder / name
        with suppress(FileNotFoundError):
            try:
                words = read_bytes(path, 4096).split()
            except BadFile as error:
                yield FsckFault(path, str(error.facts["why"]))
                continue
            if words not in ([b"down"], [b"quarantined"], [b"up"], [b"uninstalled"]) and not is_hidden(name):
                yield FsckFault(path, "it says none of down, quarantined, uninstalled or up, so the role runs")


DEAD = "moved to dead/ with its reason; what has ended already is set aside"
COURT: tuple[Check, ...] = (
    Check("folders", "Every folder that a home needs is there.", _missing_folders, "made anew", _make),
    Check("version", "The home says which format it has.", _unknown_version),
    Check("owner", "The home belongs to the user whose roles run in it.", _owners),
    Check("permissions", "Nobody else may enter the folders of a home.", _open_folders, "closed (0700)", _close),
    Check("secrets", "Nobody else may read a file with secrets.", _open_secrets, "closed (0600)", _close),
    Check("locks", "A lock is a regular file.", _locks, ASIDE, set_aside),
    Check("wanted", "A role that shall not run is marked down or quarantined.", _wanted, ASIDE, set_aside),
    Check("litter", LITTER_RULE, _litter, ASIDE, set_aside),
    Check(
        "queues",
        "A file of a queue holds one record that fits its schema and is named after its id.",
        _unfit,
        DEAD,
        _park,
    ),
    Check(
        "results",
        "A file among the results can be read and is named after its task.",
        _unfit_results,
        ASIDE,
        set_aside,
    ),
    Check("state", STATE_RULE, _unfit_state, ASIDE, set_aside),
    Check("one-place", "A record is in one state.", _doubled, "the earlier one is set aside", set_aside),
    Check("reasons", "A file in dead/ has its reason beside it.", _unexplained, "an unknown reason is noted", _explain),
    Check("one-task", "An event becomes one task.", _one_task),
    Check(
        "one-message",
        "A cause leads to one message.",
        _one_message,
        "one that was not posted goes to dead/",
        _park_if_pending,
    ),
    Check("lost-task", "An event under way has a task.", _lost_tasks),
    Check("ended-early", "An event ends with its task.", _ended_early),
    Check(
        "index",
        "done.idx is a file of whole lines.",
        _index_lines,
        "damaged lines are dropped; what is no file is set aside",
        _drop_damaged,
    ),
    Check("replays", "An event that became a task is in done.idx.", _unindexed, "added", _index),
    Check(
        "promises",
        "A message whose id was noted has been written.",
        _promised,
        "written, saying that one was lost",
        _say_it_was_lost,
    ),
    Check("last-word", "People got a message about every ended task.", _last_words),
    Check("outcome", "A task that has ended has its result as long as that is kept.", _results),
    Check("questions", "An open question has a checkpoint.", _questions, "made anew from its task", _checkpoint_again),
    Check("orphans", "Files of soldiers belong to a task.", _orphans, ASIDE, set_aside),
    Check("sessions", "A row of sessions.json belongs to a task.", _rows_of_nothing, "struck", _strike_row),
    Check("receipts", "Notes of the envoy about posts belong to messages.", _receipts, ASIDE, set_aside),
    Check(
        "numbers",
        "A counter is not behind the ids that are in use.",
        _numbers,
        "set to the highest in use",
        _number_anew,
    ),
)
CHECKS: tuple[Check, ...] = (
    *COURT,
    *(check for wing in wings.rows() if wing.invariants for check in tables.load(wing.invariants)),
)
