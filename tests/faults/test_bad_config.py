"""Bad configuration: a role refuses to start with 78 and one line; a running one keeps the old and says so once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kingdom.base.errors import Exit
from kingdom.base.home.places import Places
from tests.faults import homes, oracle, trees

KING = ("-m", "kingdom.king")
ROLES = {"king": KING, "envoy": ("-m", "kingdom.envoy"), "gen-pr": ("-m", "kingdom.general", "gen-pr")}
OWN_FILE = {"king": "king", "envoy": "envoy", "gen-pr": "general"}

LAUGHS = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (letter, letter, b", ".join([b"*%c" % (letter - 1)] * 9)) for letter in range(98, 107)
)

BAD: dict[str, tuple[bytes, str]] = {
    "wrong type": (b"# a comment\nintervals: soon\nheartbeat: soon\n", "soon"),
    "a list": (b"- a\n- b\n", "keys and values"),
    "half a line": (b"heartbeat:\n  thresh\nintervals:\n  event_check", ""),
    "broken YAML": (b"a: [1, 2\nb: {", "YAML"),
    "a tab": (b"a:\n\tb: 1\n", "YAML"),
    "a key twice": (b"intervals: {}\nintervals: {}\n", "second time"),
    "not UTF-8": (b"\xff\xfe\x00", "UTF-8"),
    "deep": (b"[" * 50_000, ""),
    "an object of Python": (b"a: !!python/object/apply:os.system ['true']\n", ""),
    "a billion laughs": (LAUGHS, ""),
}
"""What the file holds, and a word that must stand in the error."""


def check_start(tree: Path) -> list[str]:
    wrong = []
    for role in ROLES:
        for file in ("system", OWN_FILE[role]):
            for what, (content, word) in BAD.items():
                if file != OWN_FILE["king"] and what not in ("wrong type", "broken YAML"):
                    continue
                wrong += [f"{role}, {file}.yaml, {what}: {line}" for line in refused(tree, role, file, content, word)]
    return wrong


def refused(tree: Path, role: str, file: str, content: bytes, word: str) -> list[str]:
    home = trees.new_folder()
    places = homes.make(home)
    (places.config / f"{file}.yaml").write_bytes(content)
    homes.put(home, "events", "pending", homes.event("evt-github-1-x"))
    try:
        ended = trees.run(tree, home, [*ROLES[role], "--once"])
    except subprocess.TimeoutExpired:
        return ["still reads it after a minute"]
    told = ended.stderr.strip()
    wrong = [] if ended.returncode == Exit.REFUSED else [f"ended with {ended.returncode}: {told[-300:]}"]
    wrong += [] if "\n" not in told and f"{file}.yaml" in told and word in told else [f"said {told[-400:]!r}"]
    if oracle.states_of(home, "events") != {"evt-github-1-x": ["pending"]}:
        wrong.append("it worked all the same")
    trees.remove(home)
    return wrong


def check_fifo(tree: Path) -> list[str]:
    """A configuration that would hang whoever reads it."""
    home = trees.new_folder()
    places = homes.make(home)
    (places.config / "king.yaml").unlink()
    os.mkfifo(places.config / "king.yaml")
    ended = trees.run(tree, home, [*KING, "--once"])
    wrong = [] if ended.returncode == Exit.REFUSED else [f"ended with {ended.returncode}: {ended.stderr[-300:]}"]
    trees.remove(home)
    return wrong


def check_reload(tree: Path) -> list[str]:
    """Half a file, a wrong type and a broken manifest while it runs; then a good file."""
    home = trees.new_folder()
    places = homes.make(
        home, config={"king": {"intervals": {"event_check_seconds": 0.2}, "concurrency": {"max_soldiers": 20}}}
    )
    wrong: list[str] = []
    with trees.running(tree, home, KING) as king:
        if not trees.until(lambda: "starts" in log(places)):
            return ["the king did not start"]
        for number, what in enumerate(("wrong type", "half a line", "broken YAML")):
            replace(places.config / "king.yaml", BAD[what][0])
            king.send_signal(signal.SIGUSR1)
            told = trees.until(lambda number=number: log(places).count("keeps its old configuration") > number)
            wrong += [] if told else [f"{what}: said nothing"]
            wrong += goes_on(places)
            wrong += serves(home, f"evt-github-{number}-x")
            if king.poll() is not None:
                return [*wrong, f"{what}: the king ended with {king.poll()}"]
        replace(places.manifest(homes.GENERAL), b"name: [")
        told = trees.until(lambda: "keeps the old manifest" in log(places))
        wrong += [] if told else ["a broken manifest: said nothing"]
        wrong += serves(home, "evt-github-9-x")
        homes.install(home, homes.GENERAL)
        replace(places.config / "king.yaml", b"concurrency: {max_soldiers: 5}\n")
        wrong += [] if trees.until(lambda: "took over" in log(places)) else ["good configuration was not taken over"]
        wrong += [] if king.poll() is None else [f"the king ended with {king.poll()}"]
        expected = {"keeps its old configuration": 3, "keeps the old manifest": 1}
        counts = {line: log(places).count(line) for line in expected}
        wrong += [] if counts == expected else [f"errors: {counts}"]
    trees.remove(home)
    return wrong


def check_uninstalled(tree: Path) -> list[str]:
    """Tasks of a general that is gone hold nobody up."""
    home = trees.new_folder()
    homes.make(home, config={"king": {"concurrency": {"max_soldiers": 1}}})
    homes.put(home, "tasks", "pending", homes.task("task-20260101-001", "evt-gone", target_general="gen-gone"))
    with trees.running(tree, home, KING):
        wrong = serves(home, "evt-github-1-x")
    trees.remove(home)
    return wrong


def check_never_accepted(tree: Path) -> list[str]:
    """A manifest that was never good may be that of the general which takes what nobody else does."""
    home = trees.new_folder()
    places = homes.make(home, config={"king": {"intervals": {"event_check_seconds": 0.2}}})
    replace(places.manifest(homes.GENERAL), b"name: [")
    homes.put(home, "events", "pending", homes.event("evt-github-1-x"))
    with trees.running(tree, home, KING):
        told = trees.until(lambda: "keeps events that nobody takes" in log(places))
        wrong = [] if told else ["said nothing"]
        wrong += goes_on(places)
        if oracle.states_of(home, "events") != {"evt-github-1-x": ["pending"]}:
            wrong.append(f"it did not wait: {oracle.states_of(home, 'events')}")
        homes.install(home, homes.GENERAL)
        done = trees.until(lambda: oracle.states_of(home, "events") == {"evt-github-1-x": ["dispatched"]})
        wrong += [] if done else ["it was not served when the manifest was mended"]
    trees.remove(home)
    return wrong


def goes_on(places: Places) -> list[str]:
    """Three more turns: whatever it has to say at each of them is said by then."""
    turns = oracle.beats(places, "king")
    done = trees.until(lambda: oracle.beats(places, "king") >= turns + 3)
    return [] if done else ["the king does not go on"]


def serves(home: Path, name: str) -> list[str]:
    homes.put(home, "events", "pending", homes.event(name))
    done = trees.until(lambda: oracle.states_of(home, "events").get(name) == ["dispatched"])
    return [] if done else [f"{name} was not served under the old configuration"]


def log(places: Places) -> str:
    path = places.role_log("king")
    return path.read_text() if path.exists() else ""


def replace(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(path)


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "start": check_start,
    "a pipe for a file": check_fifo,
    "reload": check_reload,
    "uninstalled": check_uninstalled,
    "never accepted": check_never_accepted,
}


@pytest.mark.parametrize("what", CHECKS)
def test_bad_configuration_is_refused_or_the_old_one_kept(what: str, figure: oracle.Figure) -> None:
    wrong = CHECKS[what](trees.program())
    figure(f"bad configuration, {what}: {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
