"""Seeded defects: a check that cannot see the defect it is for is no check.

A mutant changes one place of the program in a copy of it; the same check then runs on that copy and must
find something wrong. A row of MUTANTS is one mutant; `checks` in test_mutants.py says what each check runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults import trees
from tests.faults.sweep import StepFails

Check = Callable[[Path, str], list[str]]
"""A check runs the program of a tree and returns what is wrong; with the unchanged program, nothing.
It may look only near the calls that the pattern names."""


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    caught_by: str
    near: str = ""
    """Where the defect can show: a sweep tries only the calls that match, a power cut only this outcome."""
    quick: bool = False


class Outdated(AssertionError):
    """The program has changed, so that this mutant's old text is not there exactly once."""


def defective(mutant: Mutant) -> str:
    """The text of the file with the defect in it."""
    path = trees.program() / mutant.file
    text = path.read_text() if path.is_file() else ""
    count = text.count(mutant.old)
    if count != 1:
        raise Outdated(f"{mutant.name}: the old text is {count} times in {mutant.file}:\n{mutant.old}")
    return text.replace(mutant.old, mutant.new)


def plant(mutant: Mutant) -> Path:
    """A compiled copy of the program with the defect in it."""
    text = defective(mutant)
    folder = trees.new_folder()
    shutil.copytree(trees.program(), folder, dirs_exist_ok=True)
    (folder / mutant.file).write_text(text)
    trees.compile_file(folder / mutant.file)
    return folder


def is_caught(mutant: Mutant, check: Check) -> bool:
    tree = plant(mutant)
    try:
        found = check(tree, mutant.near)
    except StepFails as trouble:
        found = [str(trouble)]
    finally:
        trees.remove(tree)
    print(f"{mutant.name}: {found[0][:300] if found else 'NOT CAUGHT'}")
    return bool(found)


def chosen(mutants: Iterable[Mutant]) -> list[Mutant]:
    return [mutant for mutant in mutants if mutant.quick or trees.ALL_MUTANTS]


ATOMIC, CODEC, LOCK = "kingdom/disk/atomic.py", "kingdom/disk/codec.py", "kingdom/disk/lock.py"
PLACES, ROLE, CONFIG = "kingdom/home/places.py", "kingdom/runtime/role.py", "kingdom/home/config.py"
DISPATCH, OUTBOUND = "kingdom/king/dispatch.py", "kingdom/envoy/outbound.py"
CAMPAIGN, BARRACK = "kingdom/general/campaign.py", "kingdom/soldiers/handle.py"

MUTANTS = [
    # 1: killed anywhere
    Mutant(
        "files are written in place",
        ATOMIC,
        "                os.replace(draft, path)\n",
        "                Path(path).write_bytes(Path(draft).read_bytes())\n                os.unlink(draft)\n",
        caught_by="king kill",
        near="^write queue",
        quick=True,
    ),
    Mutant(
        "an event moves before its task is made",
        DISPATCH,
        '        post.deliver(\n            "tasks",\n',
        '        queues.events.move([e.event.id for e in decrees if e.task], "pending", "dispatched")\n'
        '        post.deliver(\n            "tasks",\n',
        caught_by="king kill",
        near="tasks|tmp",
    ),
    Mutant(
        "the task's id is not noted in its event first",
        DISPATCH,
        '        queues.events.update("pending", [each.event for each in decrees])\n',
        "",
        caught_by="king kill",
        near="^renameat2 queue/events|done",
    ),
    Mutant(
        "litter of a killed life is left",
        ROLE,
        "    disk.sweep_scratch()\n",
        "",
        caught_by="king kill",
        near="tmp",
    ),
    Mutant(
        "no intent is noted before a letter is said",
        OUTBOUND,
        "        self._note_intents(letters)\n",
        "",
        caught_by="envoy kill",
        near="receipts|messages/",
        quick=True,
    ),
    Mutant(
        "a result is reported before its checkpoint and its lessons",
        CAMPAIGN,
        '        if result.status == "needs_human":\n            self._services.disk.rewrite(',
        "        self._services.disk.rewrite(self._services.places.result(task.id), to_json(result.to_json()))\n"
        '        if result.status == "needs_human":\n            self._services.disk.rewrite(',
        caught_by="general kill",
        near="results|memory",
    ),
    Mutant(
        "a restarted general does not know its soldiers",
        CAMPAIGN,
        "        lives = barrack.lives()\n",
        "        lives = task.id in self._children\n",
        caught_by="general kill",
        near="logs/gen-pr",
    ),
    Mutant(
        "a raw report of an earlier attempt counts",
        BARRACK,
        'if report and report.get("attempt") == attempt else None',
        "if report else None",
        caught_by="general kill",
        near="sessions",
    ),
    Mutant(
        "an order forgets what it has made before it is done",
        "kingdom/king/orders.py",
        'self._note(self._services.queues.orders.read("pending", order.id), outcome=outcome)',
        "self._note(order, outcome=outcome)",
        caught_by="orders kill",
        near="orders/pending/ord-retry",
    ),
    # 2: power cuts
    Mutant(
        "no fsync of files",
        ATOMIC,
        '            if self.durability == "power":\n                os.fsync(fd)\n',
        "",
        caught_by="king power",
        near="names",
        quick=True,
    ),
    Mutant(
        "no fsync of folders",
        ATOMIC,
        '        if self.durability == "process":\n            return\n        for folder in folders:\n',
        "        for folder in ():\n",
        caught_by="envoy power",
        near="synced",
    ),
    # 3: a disk that fails
    Mutant(
        "a full disk ends the role for good",
        ROLE,
        "        except (KingdomError, OSError) as trouble:\n            # A full",
        "        except OSError:\n            raise SystemExit(78) from None\n"
        "        except KingdomError as trouble:\n            # A full",
        caught_by="full disk, king",
        quick=True,
    ),
    Mutant(
        "a beat needs room",
        ROLE,
        "        write_in_place(self._fd, ",
        "        os.pwrite(self._fd, b' ', 4096 * self._beats)\n        write_in_place(self._fd, ",
        caught_by="full disk, king",
    ),
    # 8: two kings
    Mutant(
        "no flock",
        LOCK,
        "            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "            pass\n",
        caught_by="parallel starts",
    ),
    Mutant(
        "a replaced lock is not noticed",
        ROLE,
        "        self._lock.check()\n",
        "",
        caught_by="replaced while it idles",
        quick=True,
    ),
    # 13: bad files
    Mutant(
        "reads wait for a pipe's writer",
        CODEC,
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)\n    except FileNotFoundError:",
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)\n    except FileNotFoundError:",
        caught_by="bad events",
    ),
    Mutant(
        "duplicate keys pass",
        CODEC,
        "json.JSONDecoder(object_pairs_hook=_unique, ",
        "json.JSONDecoder(",
        caught_by="bad events",
        quick=True,
    ),
    Mutant("NaN passes", CODEC, "parse_constant=_no_constant, ", "", caught_by="bad events"),
    Mutant(
        "no reason beside the dead",
        "kingdom/records/queues.py",
        "{grave.name}.reason",
        "{grave.name}.tmp",
        caught_by="bad events",
    ),
    # secrets
    Mutant(
        "a defect is told with its secrets",
        ROLE,
        "        log = services.log  # which knows the secrets\n",
        "",
        caught_by="a defect and a secret",
        quick=True,
    ),
    # 14: names
    Mutant(
        "a slash may stand in a name",
        PLACES,
        "[A-Za-z0-9._:@+-]*\\Z",
        "[A-Za-z0-9._:@+/-]*\\Z",
        caught_by="doors",
        quick=True,
    ),
    # 15: permissions
    Mutant(
        "everybody may write to the home",
        PLACES,
        "        if about.st_mode & stat.S_IWOTH:\n",
        "        if about.st_mode & stat.S_IFIFO and False:\n",
        caught_by="open to all",
        quick=True,
    ),
    Mutant(
        "others may read the secrets",
        CONFIG,
        "    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):\n",
        "    if about.st_mode & stat.S_ISVTX:\n",
        caught_by="open secrets",
    ),
    # 16: duplicates
    Mutant(
        "a replay after retention is not recognised",
        DISPATCH,
        "        return self._desk.done.task_of(event.id)\n",
        "        return None\n",
        caught_by="told_again_after_retention",
        quick=True,
    ),
    # 19: configuration
    Mutant(
        "broken configuration ends a running role",
        ROLE,
        '            self._services.log.error(f"keeps its old configuration: {trouble}")\n',
        "            raise SystemExit(78) from trouble\n",
        caught_by="reload",
    ),
    Mutant(
        "broken configuration is told at every turn",
        ROLE,
        "        self._seen_files, self._reload_asked = now_there, False\n",
        "        self._reload_asked = False\n",
        caught_by="reload",
        quick=True,
    ),
]
