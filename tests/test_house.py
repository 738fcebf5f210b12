"""Every line stands in the room it belongs to.

A check names file:line of what does not; it is shown a house with that very defect and must name it."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HOUSE = Path(__file__).resolve().parent.parent

# Who may import whom: downwards alone, and within one's own room. A role imports no role, a library no library.
PRODUCTS = ("base", "court", "mq", "hall", "council", "demo")
GROUND_FLOOR = {
    **dict.fromkeys(("kingdom", "wings", "base", "court", "hall", "council", "demo"), 0),
    **dict.fromkeys((f"base.{name}" for name in "errors loopback times words durations retry tables wing".split()), 0),
    "base.disk": 1,
    "base.home": 2,
    "base.log": 3,
    "base.records": 4,
    "court.rules": 5,
    "court.picture": 6,
    "court.reasons": 7,
    "base.runtime": 8,
}
LIBRARIES = frozenset(
    "base.program mq court.steward court.soldiers court.connections court.upkeep demo.standins "
    "hall.topics hall.database hall.ports hall.reasons hall.figures "
    "council.mime council.bodies council.players council.reasons council.figures council.furnish".split()
)
ROLES = frozenset(
    "court.sentinel court.king court.general court.soldier court.envoy court.chamberlain mq.mailbox council.monitor "
    "council.team hall.gateway hall.worker cli".split()
)
RANKS = {
    **GROUND_FLOOR,
    **dict.fromkeys(LIBRARIES, 9),
    **dict.fromkeys(("council.agents", "council.copies", "council.metrics", "hall.copies", "hall.metrics"), 10),
    "council.upkeep": 11,
    **dict.fromkeys(ROLES, 11),
    **dict.fromkeys(("hall.channel", "council.general"), 12),
    "processes": 13,
}

# Walls between products. Each edge across one that still stands has its line here.
MAY_IMPORT = {
    "base": {"base"},
    "court": {"base", "court"},
    "mq": {"base", "mq"},
    "hall": {"base", "court", "hall"},
    "council": {"base", "court", "council"},
    "cli": {"base", "court", "cli"},
    "demo": {"base", "court", "cli", "demo"},
}
COMMANDS_THAT_USE_CLI = ("kingdom.council.cli.",)
"""Commands of products that are made of commands of every home: `council plan --wait` is a `say`."""
BREACHES = frozenset(
    {
        ("cli", "demo.demo"),  # the table of commands
    }
)

# Who may import what is not ours. A package without a row is refused: one more SDK is one line here.
SDKS = {
    "argon2": ("kingdom/hall/database/passwords.py",),
    "bcrypt": ("kingdom/hall/database/passwords.py",),
    "click": (
        "kingdom/base/program/",
        "kingdom/cli/",
        "kingdom/mq/cli/",
        "kingdom/hall/cli/",
        "kingdom/council/cli/",
        "kingdom/demo/",
    ),
    "confluent_kafka": ("kingdom/hall/topics/kafka.py",),
    "croniter": ("kingdom/court/rules/schedules.py",),
    "fastjsonschema": ("kingdom/base/home/schemas.py",),
    "h11": ("kingdom/hall/gateway/frames.py",),
    "inotify_simple": ("kingdom/base/runtime/wake.py",),
    "jsonschema": ("kingdom/base/home/schemas.py",),
    "jwt": ("kingdom/hall/gateway/tokens.py",),
    "orjson": ("kingdom/mq/", "kingdom/mq/mailbox/", "kingdom/hall/"),
    "psutil": ("kingdom/court/chamberlain/vitals.py",),
    "psycopg": ("kingdom/hall/database/postgres.py",),
    "requests": ("kingdom/court/connections/web.py",),
    "rich": ("kingdom/base/program/screen.py",),
    "slack_sdk": ("kingdom/court/envoy/channels/slack.py", "kingdom/court/envoy/channels/slack_socket.py"),
    "starlette": ("kingdom/hall/gateway/",),
    "supervisor": ("kingdom/court/steward/supervisord.py",),
    "uvicorn": ("kingdom/hall/gateway/",),
    "websockets": ("kingdom/hall/gateway/",),
    "urllib3": ("kingdom/court/connections/web.py",),
    "yaml": ("kingdom/base/home/config.py",),
    # of the standard library, what only few rooms may know
    "ctypes": ("kingdom/base/disk/atomic.py", "kingdom/base/runtime/processes.py", "kingdom/court/soldier/"),
    "sqlite3": (
        "kingdom/mq/",
        "kingdom/council/team/",
        "kingdom/hall/database/sqlite.py",
        "kingdom/court/upkeep/backup.py",
    ),
}

FOLDERS_OF_THE_HOME = frozenset(
    "queue state logs memory workspace config generals schemas events tasks messages orders topics mailbox "
    "mq council pending dispatched completed in_progress sent failed done dead results prompts soldiers run "
    "wanted".split()
)
MAY_SPELL_FOLDERS = frozenset({"kingdom/base/home/places.py", "kingdom/base/home/states.py"})


class Source(NamedTuple):
    path: Path
    name: str  # relative to the house, with "/"
    tree: ast.Module

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def room(self) -> str:
        """The folder under kingdom/, or "" for a loose file."""
        parts = self.name.split("/")
        return parts[1] if len(parts) > 2 else ""

    @property
    def floor(self) -> str:
        return floor_of(self.module)

    @property
    def product(self) -> str:
        return product_of(self.module)

    def at(self, node: ast.AST) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 1)}"


def floor_of(module: str) -> str:
    """The room: a folder or a file of a product, `cli` for every command, `processes` for what `python -m` runs."""
    parts = module.split(".")[1:]
    if "cli" in parts[:2] or parts == ["__main__"] or (parts[:1] == ["demo"] and parts[1:2] not in ([], ["standins"])):
        return "cli" if parts != ["__main__"] else "processes"
    if parts == ["wings"]:
        return "wings"
    if parts[1:] == ["wing"] and parts[0] != "base":
        return "processes"  # a row names what its product is made of
    if parts[-1:] == ["__main__"] or (len(parts) == 1 and (HOUSE / f"kingdom/{parts[0]}.py").is_file()):
        return "processes"
    if parts[:1] == ["mq"]:
        return "mq.mailbox" if parts[1:2] == ["mailbox"] else "mq"
    if parts[:1] and parts[0] in PRODUCTS:
        return ".".join(parts[:2])
    return parts[0] if parts else "kingdom"


def product_of(module: str) -> str:
    """The product that a module belongs to; "" for processes, which assemble."""
    parts = module.split(".")[1:]
    if parts[:1] == ["cli"] or (parts[:1] and parts[0] in PRODUCTS and parts[-1] != "__main__"):
        return parts[0]
    return ""


class Import(NamedTuple):
    node: ast.AST
    module: str  # dotted and absolute; for `from a import b` it is "a.b"
    on_load: bool  # runs when the file is loaded: not in a function, not for type checkers only


@cache
def _read(path: Path, name: str) -> Source:
    return Source(path, name, ast.parse(path.read_text(), name))


def sources(root: Path) -> list[Source]:
    files = sorted((root / "kingdom").rglob("*.py"))
    return [_read(path, path.relative_to(root).as_posix()) for path in files]


def imports(source: Source) -> list[Import]:
    return _imports_of(source.path, source.name)


@cache
def _imports_of(path: Path, name: str) -> list[Import]:
    source = _read(path, name)
    return list(_imports(source, source.tree, on_load=True))


def _imports(source: Source, node: ast.AST, on_load: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(child, alias.name, on_load) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(source, child)
            yield from (Import(child, f"{base}.{alias.name}", on_load) for alias in child.names)
        elif isinstance(child, ast.If) and _last_name(child.test) == "TYPE_CHECKING":
            yield from _imports(source, ast.Module(child.body, []), on_load=False)
            yield from _imports(source, ast.Module(child.orelse, []), on_load)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(source, child, on_load and not function)


def _last_name(node: ast.expr) -> str | None:
    """`b` of `b` and of `a.b`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    if not source.name.endswith("/__init__.py"):
        package = package[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def rows(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """The rows of extension tables: {"name": "module:attribute"}; of a product's row whatever names code."""
    if source.name.endswith("/wing.py"):
        for value in ast.walk(source.tree):
            if isinstance(value, ast.Constant) and re.fullmatch(r"kingdom(\.\w+)+:\w+", str(value.value)):
                yield value, str(value.value)
        return
    for table in ast.walk(source.tree):
        if isinstance(table, ast.Dict):
            for value in table.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    row = value.value
                    table_room = source.name.endswith("__init__.py") and re.fullmatch(r"\w+(\.\w+)*:\w+", row)
                    if table_room or re.fullmatch(r"kingdom(\.\w+)+:\w+", row):
                        yield value, row


def wrong_direction(root: Path) -> Iterator[str]:
    """roles -> libraries -> runtime -> rules -> records -> home -> disk; nobody sideways, nobody the cli.

    Stand-ins know nothing of us, and of us only the cli, for its demo, knows them."""
    known = {source.module for source in sources(root)}
    for source in sources(root):
        if source.floor not in RANKS:
            yield f"{source.at(source.tree)} stands in a room the house does not know: kingdom/{source.floor}"
            continue
        wanted = [(found.node, found.module) for found in imports(source)]
        wanted += [(node, row.partition(":")[0]) for node, row in rows(source)]
        for node, module in wanted:
            parts = module.split(".")
            if parts[0] != "kingdom" or len(parts) < 2:
                continue
            there = floor_of(module)
            if there not in RANKS:
                there = floor_of(module.rpartition(".")[0])
            if f"kingdom.{parts[1]}" not in known and there not in RANKS:
                there = "kingdom"
            rank, own = RANKS.get(there, 0), RANKS[source.floor]
            if there == "demo.standins" != source.floor and source.floor != "cli":
                yield f"{source.at(node)} {source.floor} speaks to a stand-in"
            elif source.floor == "demo.standins" != there:
                yield f"{source.at(node)} a stand-in knows of {there}"
            elif any(is_breach(source.module, module, pair) for pair in BREACHES):
                continue
            elif (there != source.floor and rank >= own > 0) or own == 0 < rank:
                yield f"{source.at(node)} {source.floor} imports {there}"


def breached_walls(root: Path) -> Iterator[str]:
    """A product imports those alone that it stands on; what is left of before has its line in BREACHES."""
    for source in sources(root):
        if source.product:
            wanted = [(found.node, found.module) for found in imports(source)]
            wanted += [(node, row.partition(":")[0]) for node, row in rows(source)]
            for node, module in wanted:
                there = product_of(module) if module.startswith("kingdom.") else ""
                may = MAY_IMPORT[source.product] | (
                    {"cli"} if source.module.startswith(COMMANDS_THAT_USE_CLI) else set()
                )
                if there and there not in may and not any(is_breach(source.module, module, pair) for pair in BREACHES):
                    yield f"{source.at(node)} {source.product} imports {module}"


def is_breach(own: str, module: str, pair: tuple[str, str]) -> bool:
    return own == f"kingdom.{pair[0]}" and f"{module}.".startswith(f"kingdom.{pair[1]}.")


def strangers(root: Path) -> Iterator[str]:
    """What is not ours is imported only where its row in SDKS allows it."""
    for source in sources(root):
        for found in imports(source):
            top = found.module.partition(".")[0]
            if top == "kingdom" or (top in sys.stdlib_module_names and top not in SDKS):
                continue
            allowed = SDKS.get(top, ())
            if not source.name.startswith(allowed):
                yield f"{source.at(found.node)} imports {top}, allowed in {', '.join(allowed) or 'no room'}"


DISK_MODULES = ("kingdom/base/disk/atomic.py", "kingdom/base/disk/bulk.py")
MOVERS = {("os", name) for name in ("rename", "renames", "replace", "link")} | {("shutil", "move")}


def moved_by_hand(root: Path) -> Iterator[str]:
    """Files are moved, replaced and linked by `atomic` and `bulk` alone."""
    for source in sources(root):
        if source.name in DISK_MODULES:
            continue
        names = {
            alias.asname or alias.name: alias.name
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (node.module, alias.name) in MOVERS:
                        yield f"{source.at(node)} takes {node.module}.{alias.name}"
            elif isinstance(node, ast.Attribute) and (_owner(node, names), node.attr) in MOVERS:
                yield f"{source.at(node)} uses {ast.unparse(node)}"
            if isinstance(node, ast.Call) and _moves_a_path(node, names):
                yield f"{source.at(node)} calls {ast.unparse(node.func)}"


def _owner(node: ast.Attribute, names: dict[str, str]) -> str | None:
    return names.get(node.value.id) if isinstance(node.value, ast.Name) else None


def _moves_a_path(call: ast.Call, names: dict[str, str]) -> bool:
    """Path.rename, replace, hardlink_to: of all methods named so only Path's take one bare argument."""
    if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return False
    if _owner(call.func, names):
        return False
    return call.func.attr in {"rename", "replace", "hardlink_to"}


SLOW_TO_LOAD = frozenset({"dataclasses", "inspect"})
ENGINES = "kingdom/court/soldiers/engines/"
SOLDIER = ("kingdom/court/soldier/", "kingdom/soldier.py", "kingdom/council/mime")


def heavy_soldier(root: Path) -> Iterator[str]:
    """A soldier, its engines and the MIME codec start in milliseconds: they load what is quick of the standard library.

    What an engine does for its general may load more, inside a function.
    """
    known = {source.module: source for source in sources(root)}
    for source in known.values():
        if source.name.startswith(SOLDIER) or source.name.startswith(ENGINES):
            for found in imports(source):
                own = found.on_load or not source.name.startswith(ENGINES)
                if own and (chain := _way_out(known, found.module, frozenset({source.module}))):
                    yield f"{source.at(found.node)} brings in {' -> '.join(chain)}"


def _way_out(known: dict[str, Source], module: str, seen: frozenset[str]) -> list[str]:
    """The chain of loads from `module` to something outside the standard library, or []."""
    if not module.startswith("kingdom"):
        top = module.partition(".")[0]
        return [] if top in sys.stdlib_module_names - SLOW_TO_LOAD else [top]
    parts = module.split(".")
    loaded = {".".join(parts[: length + 1]) for length in range(len(parts))} & known.keys() - seen
    for name in sorted(loaded):
        for found in imports(known[name]):
            if found.on_load and (chain := _way_out(known, found.module, seen | loaded)):
                return [name, *chain]
    return []


def dangling_rows(root: Path) -> Iterator[str]:
    """A table's "module:attribute" names something that is there."""
    for source in sources(root):
        for node, row in rows(source):
            module, _, attribute = row.partition(":")
            base = root / module.replace(".", "/")
            file = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
            if not file.exists():
                yield f"{source.at(node)} {row}: no module {module}"
            elif attribute not in _bound(_read(file, file.relative_to(root).as_posix()).tree):
                yield f"{source.at(node)} {row}: no {attribute} in {module}"


def _bound(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                names.update(name.id for name in ast.walk(target) if isinstance(name, ast.Name))
    return names


def lost_programs(root: Path) -> Iterator[str]:
    """A general's program stands outside: it knows the ground floor alone, and takes from it what is there."""
    known = {source.module: source for source in sources(root) if source.floor in GROUND_FLOOR}
    for path in sorted((root / "generals").glob("*/run")):
        if not path.read_text().startswith("#!/usr/bin/env python3"):
            continue
        program = _read(path, path.relative_to(root).as_posix())
        for found in imports(program):
            module, _, name = found.module.rpartition(".")
            if found.module.partition(".")[0] != "kingdom" or found.module in known:
                continue
            if module not in known:
                yield f"{program.at(found.node)} imports {found.module}, which is not on the ground floor"
            elif name not in _bound(known[module].tree):
                yield f"{program.at(found.node)} {found.module}: no {name} in {module}"


def false_queue(root: Path) -> Iterator[str]:
    """With a package in the root queue/, Python may import it instead of its own `queue`."""
    if (root / "queue/__init__.py").exists():
        yield "queue/__init__.py:1 hides the standard library's queue"


def sleeping_tests(root: Path) -> Iterator[str]:
    """A test waits for an event with a deadline; it does not sleep."""
    for path in sorted((root / "tests").rglob("*.py")):
        if "sleep" not in (text := path.read_text()):
            continue  # only a few files are worth parsing
        source = Source(path, path.relative_to(root).as_posix(), ast.parse(text))
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                sleeps = "sleep" in {alias.name for alias in node.names}
            else:
                sleeps = isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node) == "time.sleep"
            if sleeps:
                yield f"{source.at(node)} sleeps"


def open_databases(root: Path) -> Iterator[str]:
    """A function that opens a database closes it, also after an error: with closing(sqlite3.connect(…)) as db, db."""
    for folder in ("kingdom", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            if "sqlite3.connect" not in (text := path.read_text()):
                continue
            source = Source(path, path.relative_to(root).as_posix(), ast.parse(text))
            for node in ast.walk(source.tree):
                if not isinstance(node, ast.FunctionDef):
                    continue
                words = ast.unparse(node)
                if "sqlite3.connect" in words and "closing(" not in words and ".close" not in words:
                    yield f"{source.at(node)} leaves a database open"


def spelt_folders(root: Path) -> Iterator[str]:
    """`path / "pending"`: the home's folders are spelt in places.py and states.py alone."""
    for source in sources(root):
        if source.name in MAY_SPELL_FOLDERS:
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                text = node.right.values[0] if isinstance(node.right, ast.JoinedStr) else node.right
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    first = text.value.partition("/")[0]
                    if first in FOLDERS_OF_THE_HOME:
                        yield f"{source.at(node)} spells {first!r}"


# Written in halves, because this file is one of those that are searched.
# Each begins with plain letters: such a search is many times as fast.
NOT_OURS = [
    re.compile(pattern)
    for pattern in (
        r"issue " + r"#\d",
        r"\.\./" + r"shared\b",
        r"pypi\." + r"org\b",
        r"python" + r"hosted\b",
        r"registry\." + r"[a-z0-9.-]+\.[a-z]{2,}\b",
        r"npmjs\." + r"(?:com|org)\b",
        r"crates\." + r"io\b",
        r"deb\.debian\." + r"org\b",
        r"ghcr\." + r"io\b",
        r"quay\." + r"io\b",
        r"gcr\." + r"io\b",
        r"unpkg\." + r"com\b",
        r"jsdelivr\." + r"net\b",
    )
]


def foreign_words(root: Path) -> Iterator[str]:
    """The tree speaks of the product only, and names no registry's host."""
    for path in tracked(root):
        try:
            text = path.read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for found in (found for pattern in NOT_OURS for found in pattern.finditer(text)):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{path.relative_to(root).as_posix()}:{line} says {found[0]!r}"


def tracked(root: Path) -> list[Path]:
    """What git knows; in an unpacked archive, what neither tools nor a running kingdom have written."""
    if (root / ".git").exists() and shutil.which("git"):
        command = ["git", "-c", f"safe.directory={root}", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        written = {"state", "queue", "logs", "memory", "workspace", "build", "dist"}
        tops = [top for top in root.iterdir() if not top.name.startswith(".") and top.name not in written]
        names = [str(path.relative_to(root)) for top in tops for path in (top, *top.rglob("*"))]
    return [path for name in sorted(names) if (path := root / name).is_file()]


CLASSES_THAT_SHARE_A_NAME = frozenset({"Engine"})  # a model's, and that of the queue


def shared_class_names(root: Path) -> Iterator[str]:
    """One class, one name: whoever reads it in a message or a trace knows which one is meant."""
    seen: dict[str, str] = {}
    for source in sources(root):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and node.name not in CLASSES_THAT_SHARE_A_NAME:
                if node.name in seen:
                    yield f"{source.at(node)} {node.name} is the name of a class in {seen[node.name]} too"
                seen.setdefault(node.name, source.name)


# In halves, as above. What is refused has a plainer word beside it in the style of this project.
RIDDLES = {
    "so " + "many within": "at most … events per … seconds",
    "gone, or " + "gone before": "no error if it is absent",
    "is no " + "matter": "is ignored",
    "ends " + "nobody": "is logged and dropped",
    "who is over " + "a limit": "once over the limit",
    "takes no " + "room at the gate": "does not count against max_soldiers",
    "keeps the shelf " + "true": "a rescan catches missed events",
    "told again: it " + "became": "duplicate of",
    "called " + "back costs": "does not use up a retry",
}


def riddles(root: Path) -> Iterator[str]:
    """Plain English: verb first, no inversion, no word play."""
    for path in tracked(root):
        name = path.relative_to(root).as_posix()
        if not name.startswith(("kingdom/", "docs/", "schemas/", "README", "CONTRIBUTING")):
            continue
        try:
            text = path.read_text().lower()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for riddle, plain in RIDDLES.items():
            if (at := text.find(riddle)) >= 0:
                line = text.count("\n", 0, at) + 1
                yield f"{name}:{line} says {riddle!r}; write: {plain}"


def unexplained_packages(root: Path) -> Iterator[str]:
    """A dependency has a row in docs/dependencies.md and a pin in a lock."""
    project = root / "pyproject.toml"
    if not project.exists():
        return
    told = tomllib.loads(project.read_text())
    groups: dict[str, list[str]] = told.get("dependency-groups", {})
    asked = [*told["project"]["dependencies"], *(name for group in groups.values() for name in group)]
    rows_told = _text(root / "docs/dependencies.md")
    locked = "".join(_text(lock) for lock in sorted(root.glob("requirements*.lock")))
    for wanted in asked:
        name = re.split(r"[^\w-]", wanted)[0]
        if not re.search(rf"^\|.*\b{name}\b.*\|", rows_told, re.MULTILINE):
            yield f"pyproject.toml: {name} has no row in docs/dependencies.md"
        if not re.search(rf"^{name.replace('_', '-')}==", locked, re.MULTILINE | re.IGNORECASE):
            yield f"pyproject.toml: {name} is in no lock"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


Check = Callable[[Path], Iterator[str]]
CHECKS: tuple[Check, ...] = (
    wrong_direction,
    breached_walls,
    strangers,
    moved_by_hand,
    heavy_soldier,
    dangling_rows,
    lost_programs,
    false_queue,
    sleeping_tests,
    open_databases,
    spelt_folders,
    foreign_words,
    shared_class_names,
    riddles,
    unexplained_packages,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nothing_stands_in_the_wrong_room(check: Check) -> None:
    found = list(check(HOUSE))
    assert not found, "\n".join([check.__doc__ or "", *found])


HALVES = {
    "registry": "pypi" + ".org",
    "shared": "../" + "shared",
    "issue": "issue " + "#7",
    "connect": "sqlite3" + ".connect",
}

COURT, ENGINE, QUEUES = "kingdom/court/king/job.py", "kingdom/mq/engine.py", "kingdom/base/records/queues.py"

DEFECTS: list[tuple[Check, str, str]] = [
    (wrong_direction, f"{COURT}:2", "\nfrom kingdom.envoy import letters"),
    (wrong_direction, f"{COURT}:2", "def tick():\n    import kingdom.cli.main"),
    (wrong_direction, f"{COURT}:1", "from ..general import memory"),
    (wrong_direction, f"{COURT}:1", "from kingdom.court import general"),
    (wrong_direction, f"{COURT}:1", "TABLE = {'x': 'kingdom.court.envoy.say:Say'}"),
    (wrong_direction, f"{ENGINE}:1", "import kingdom.hall.topics"),
    (wrong_direction, f"{ENGINE}:1", "from kingdom.court.king.job import tick"),
    (wrong_direction, f"{QUEUES}:1", "from kingdom.mq import engine"),
    (wrong_direction, f"{QUEUES}:1", "from ...court.king import court"),
    (wrong_direction, f"{QUEUES}:1", "from kingdom.court.rules.gate import Gate"),
    (wrong_direction, "kingdom/base/disk/lock.py:1", "from kingdom.base.home.places import Places"),
    (wrong_direction, "kingdom/court/rules/gate.py:2", "def f():\n    from kingdom.base.runtime import role"),
    (wrong_direction, "kingdom/base/words.py:1", "from kingdom.base.disk import codec"),
    (wrong_direction, "kingdom/utils/io.py:1", "x = 1"),
    (wrong_direction, "kingdom/demo/standins/github.py:1", "from kingdom.base.disk import codec"),
    (wrong_direction, f"{COURT}:1", "from kingdom.demo.standins import server"),
    (breached_walls, f"{COURT}:1", "from kingdom.mq import engine"),
    (breached_walls, f"{ENGINE}:2", "def f():\n    from kingdom.court.rules import gate"),
    (breached_walls, "kingdom/mq/cli/yirangmq.py:1", "from kingdom.cli import say"),
    (breached_walls, "kingdom/hall/cli/hall.py:1", "from kingdom.council.team import plan"),
    (breached_walls, "kingdom/mq/wing.py:1", "WING = Wing(checks='kingdom.hall.cli.checks:findings')"),
    (breached_walls, "kingdom/base/home/roster.py:1", "TABLE = {'x': 'kingdom.cli.say:say'}"),
    (strangers, f"{COURT}:1", "import requests"),
    (strangers, f"{COURT}:2", "def f():\n    from psutil import Process"),
    (strangers, f"{QUEUES}:1", "import sqlite3"),
    (strangers, f"{QUEUES}:1", "import attrs"),
    (moved_by_hand, f"{QUEUES}:2", "import os\nos.replace('a', 'b')"),
    (moved_by_hand, f"{QUEUES}:2", "import os as o\nmove = o.rename"),
    (moved_by_hand, f"{QUEUES}:1", "from os import link"),
    (moved_by_hand, f"{QUEUES}:2", "import shutil\nshutil.move('a', 'b')"),
    (moved_by_hand, f"{QUEUES}:1", "def f(a, b): a.with_name('x').replace(b)"),
    (moved_by_hand, f"{QUEUES}:1", "def f(a, b): a.rename(b)"),
    (heavy_soldier, "kingdom/court/soldier/serve.py:1", "import yaml"),
    (heavy_soldier, "kingdom/court/soldier/limits.py:1", "from dataclasses import dataclass"),
    (heavy_soldier, "kingdom/court/soldiers/engines/claude.py:1", "import yaml"),
    (heavy_soldier, "kingdom/council/mime.py:2", "def f():\n    import orjson"),
    (dangling_rows, "kingdom/mq/__init__.py:2", "STORES = {\n'a': 'kingdom.mq.no:Store'}"),
    (dangling_rows, "kingdom/mq/wing.py:1", "WING = Wing(inspections=('kingdom.mq.cli.inspection:queue',))"),
    (dangling_rows, "kingdom/mq/__init__.py:1", "STORES = {'a': 'kindgom.mq.a:Store'}"),
    (dangling_rows, "kingdom/mq/__init__.py:1", "STORES: dict[str, str] = {'a': 'kingdom.mq:Store'}"),
    (lost_programs, "generals/gen-a/run:2", "#!/usr/bin/env python3\nfrom kingdom.cli.words import line"),
    (lost_programs, "generals/gen-a/run:2", "#!/usr/bin/env python3\nfrom kingdom.soldier import sandbox"),
    (lost_programs, "generals/gen-a/run:2", "#!/usr/bin/env python3\nfrom kingdom.base.disk.atomic import read_json"),
    (false_queue, "queue/__init__.py:1", ""),
    (sleeping_tests, "tests/test_a.py:2", "import time\ntime.sleep(1)"),
    (sleeping_tests, "tests/court/king/test_a.py:1", "from time import monotonic, sleep"),
    (open_databases, "tests/test_a.py:2", f"import sqlite3\ndef f():\n    with {HALVES['connect']}('x') as db: pass"),
    (open_databases, "kingdom/a.py:2", f"import sqlite3\ndef f():\n    return {HALVES['connect']}('x')"),
    (spelt_folders, f"{QUEUES}:1", "def f(home, kind): return home / 'queue' / kind"),
    (spelt_folders, f"{QUEUES}:1", "def f(home): return home / 'state/king/x'"),
    (spelt_folders, f"{QUEUES}:1", "def f(home, x): return home / f'results/{x}'"),
    (foreign_words, "docs/a.md:2", f"a\nfrom {HALVES['registry']}"),
    (foreign_words, "docs/a.md:1", f"see {HALVES['shared']}/design.md"),
    (foreign_words, "kingdom/a.py:1", f"# {HALVES['issue']}"),
    (shared_class_names, "kingdom/mq/a.py:2", "class Line: ...\nclass Line: ..."),
    (riddles, "docs/a.md:2", "a\nA lost file " + "is no " + "matter."),
    (unexplained_packages, "pyproject.toml:", "[project]\ndependencies = ['left-pad>=1']"),
]


def build(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(("check", "named", "text"), DEFECTS)
def test_a_line_in_the_wrong_room_is_named(check: Check, named: str, text: str, tmp_path: Path) -> None:
    found = list(check(build(tmp_path, {named.partition(":")[0]: text})))
    assert any(line.startswith(f"{named} ") for line in found), found


@pytest.mark.parametrize(
    ("loader", "chain"),
    [
        ("kingdom/base/home/config.py", "kingdom.base.home.config -> kingdom.deep -> yaml"),
        ("kingdom/__init__.py", "kingdom -> kingdom.deep -> yaml"),
    ],
)
def test_what_a_soldier_loads_by_way_of_others_is_named(loader: str, chain: str, tmp_path: Path) -> None:
    soldier = "kingdom/court/soldier/serve.py"
    files = {
        soldier: "from kingdom.base.home.config import load",
        "kingdom/base/home/config.py": "",
        "kingdom/deep.py": "try:\n    import yaml\nfinally:\n    pass",
        loader: "from kingdom import deep",
    }
    assert list(heavy_soldier(build(tmp_path, files))) == [f"{soldier}:1 brings in {chain}"]


def test_every_check_is_shown_a_defect() -> None:
    assert {check for check, _, _ in DEFECTS} == set(CHECKS)


TIDY = {
    "kingdom/__init__.py": "__version__ = '1'\n",
    "kingdom/base/disk/atomic.py": "import ctypes\nimport os\nos.replace('a', 'b')\n",
    "kingdom/base/home/config.py": "import json\ndef load():\n    import yaml\n",
    "kingdom/base/home/places.py": "def f(home): return home / 'queue' / 'pending'\n",
    "kingdom/court/king/job.py": "from kingdom.base.home import config\nfrom kingdom.court.rules import gate\n"
    "from . import routing\nname = 'a-b'.replace('a', 'b') + 'pending'\n",
    "kingdom/court/king/routing.py": "from dataclasses import replace\nratio = 1 / 2\n",
    "kingdom/mq/__init__.py": "STORES = {'memory': 'kingdom.mq.memory:Store'}\n",
    "kingdom/mq/memory.py": "import sqlite3\nclass Store: ...\n",
    "kingdom/mq/engine.py": "import orjson\nfrom kingdom.base.disk import atomic\n",
    "kingdom/council/mime.py": "import json\n",
    "kingdom/court/soldier/serve.py": "from kingdom.base.home.config import load\n",
    "pyproject.toml": "[project]\ndependencies = ['left_pad>=1']\n",
    "docs/dependencies.md": "| left_pad | why |\n",
    "generals/gen-a/run": "#!/usr/bin/env python3\nimport json\nfrom kingdom.base.home import config\n"
    "from kingdom.base.home.config import load\n",
    "generals/gen-b/run": "#!/bin/sh\n",
    "requirements.lock": "left-pad==1.0 \\\n",
    "tests/test_king.py": "import threading\nthreading.Event().wait(1)\n",
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_house_without_defects_passes(check: Check, tmp_path: Path) -> None:
    assert list(check(build(tmp_path, TIDY))) == []
