"""Try every path of the home that takes a name with names that contain paths.

    python tests/faults/named_paths.py COUNT

prints one line for each name that was accepted, else nothing.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from kingdom.base.errors import BadName
from kingdom.base.home.places import LONGEST_NAME, Places

EVIL = (
    *("..", ".", "../x", "../../../../../../tmp/evil", "/etc/passwd", "/tmp/evil", "a/b", "a/../../b", "./a", "~root"),
    *("a\0b", "a\nb", "a\rb", "a b", "a\tb", "a;b", "$(touch evil)", "`touch evil`", "a|b", "a&b", "a>b", "*", "?"),
    *("-rf", "--upload-pack=touch evil", "-oProxyCommand=x", "%2e%2e%2f", "..%2f..", "..\\..\\x", "C:\\x", "\\\\x\\y"),
    *(".hidden", "x.tmp/../y", "a\u202egnp", "a\u2044b", "\uff0e\uff0e\uff0fx", "a\u0000", "\uff41", "é", "가", ""),
    *(
        " ",
        "x" * 201,
        "x" * 5000,
        "con",
        "nul",
        "a'b",
        'a"b',
        "{a}",
        "%s%n",
        "\ud800",
        "#{pane_pid}",
        "#(touch evil)",
        "=king",
    ),
)
ALPHABET = [*"abc019._:@+-", *"/\\.. \n\0~$`;|&<>*?'\"%#(){}[]!,=^", "é", "가", "\u2028", "\ufeff", "\udcff"]

PATHS: dict[str, Callable[[Places, str], tuple[Path, Path]]] = {
    "queue_file": lambda places, name: (
        places.queue_file("events", "pending", name),
        places.folder("events", "pending"),
    ),
    "own": lambda places, name: (places.own(name), places.state),
    "scratch": lambda places, name: (places.scratch(name).parent, places.state),
    "heartbeat": lambda places, name: (places.heartbeat(name).parent, places.state),
    "lock": lambda places, name: (places.lock(name).parent, places.state),
    "role_log": lambda places, name: (places.role_log(name), places.logs),
    "wanted": lambda places, name: (places.wanted(name), places.wanted_folder),
    "starts": lambda places, name: (places.starts(name), places.run),
    "result": lambda places, name: (places.result(name), places.results),
    "raw_result": lambda places, name: (places.raw_result(name), places.results),
    "checkpoint": lambda places, name: (places.checkpoint(name), places.results),
    "prompt": lambda places, name: (places.prompt(name), places.prompts),
    "soldier": lambda places, name: (places.soldier_folder(name), places.soldiers),
    "workspace of a general": lambda places, name: (places.workspace(name, "t").parent, places.workspaces),
    "workspace of a task": lambda places, name: (places.workspace("g", name).parent, places.workspaces),
    "session_log": lambda places, name: (places.session_log(name, "out"), places.session_logs),
    "manifest": lambda places, name: (places.manifest(name), places.manifests),
    "package": lambda places, name: (places.package(name), places.home / "generals"),
    "memory": lambda places, name: (places.general_memory(name), places.memory / "generals"),
}
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@+-")


def names(count: int) -> Iterator[str]:
    dice = random.Random(14)
    yield from EVIL
    for _ in range(count - len(EVIL)):
        yield "".join(dice.choices(ALPHABET, k=dice.choice((1, 2, 3, 5, 8, 30))))


def let_through(count: int) -> Iterator[str]:
    places = Places(Path("/home/of/ours"))
    for name in names(count):
        for what, door in PATHS.items():
            try:
                path, parent = door(places, name)
            except BadName:
                continue
            fits = set(name) <= SAFE and not name.startswith(".") and 0 < len(name.encode()) <= LONGEST_NAME
            if not fits or path.parent != parent or os.path.normpath(path) != str(path):
                yield f"{what} makes {str(path)!r} of {name!r}"


if __name__ == "__main__":
    for line in let_through(int(sys.argv[1])):
        print(ascii(line))
