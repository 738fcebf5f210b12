"""Load configuration: YAML, validated by its schema, as a read-only mapping.

An error names the file, the line and the key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, tzinfo
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadConfig, BadFile, BadMessage
from kingdom.base.home import schemas
from kingdom.base.home.places import Places

if TYPE_CHECKING:
    import yaml

MOST_KEYS = 20_000
DEEPEST = 50
FOREIGN_NAMES: Mapping[str, Mapping[tuple[str, ...], tuple[str, ...]]] = {
    "envoy": {
        ("retry", "max_count"): ("retry", "attempts"),
        ("intervals", "outbound_seconds"): ("intervals", "message_check_seconds"),
        ("socket_mode", "app_token_env"): ("slack", "app_token_env"),
    },
    "chamberlain": {
        ("monitoring", "interval_seconds"): ("intervals", "vitals_seconds"),
        ("thresholds", "disk_warning"): ("thresholds", "disk_percent"),
        ("thresholds", "cpu_yellow"): ("thresholds", "yellow"),
        ("thresholds", "cpu_orange"): ("thresholds", "orange"),
        ("thresholds", "cpu_red"): ("thresholds", "red"),
    },
}
"""By file: what a key of ours is called in other kingdoms."""
Config = Mapping[str, Any]
Lines = dict[tuple[str | int, ...], int]


def load(places: Places, name: str, folder: Path | None = None) -> Config:
    """Return `config/<name>.yaml`, or that of another folder, with its defaults.

    A file that is missing or empty means the defaults alone.
    """
    path = (folder or places.config) / f"{name}.yaml"
    try:
        value, lines = read_yaml(path)
    except FileNotFoundError:
        value, lines = {}, {}
    if value == {}:
        return _defaults(name)
    ours, _ = _ours(name, value, lines)
    config: Config = frozen(validated(f"config/{name}", ours, lines, path))
    return config


def remarks(places: Places, *names: str) -> list[str]:
    """Return what has no effect in these files and in `.env`, a sentence for each file that has such lines."""
    from kingdom.base.home import dotenv

    found = [_ignored_keys(places.config / f"{name}.yaml", name) for name in names]
    odd: list[int] = []
    with suppress(BadFile):  # it was good when it was taken over
        _, odd = dotenv.lines(places)
    if odd:
        found.append(f"{places.env_file}: ignored lines that do not read NAME=value: {', '.join(map(str, odd))}")
    return [remark for remark in found if remark]


def without_unknown(name: str, value: Any, lines: Lines, path: Path) -> tuple[Any, str]:
    """Return a file's content in our names without the keys that have no effect, and a sentence about those."""
    ours, unknown = _ours(name, value, lines)
    keys = ", ".join(f"{'.'.join(map(str, key))} (line {_line(lines, key, value)}{near})" for key, near in unknown)
    return ours, f"{path}: ignored unknown keys: {keys}"[:1000] if unknown else ""


def _ignored_keys(path: Path, name: str) -> str:
    try:
        value, lines = read_yaml(path)
    except (FileNotFoundError, BadConfig):
        return ""
    return without_unknown(name, value, lines, path)[1]


def _ours(name: str, value: Any, lines: Lines) -> tuple[Any, list[schemas.Unknown]]:
    """Return a file's content without the keys of other kingdoms, and those."""
    value = schemas.with_moved_keys(f"config/{name}", value)
    return schemas.without_unknown(f"config/{name}", _renamed(value, FOREIGN_NAMES.get(name, {}), lines))


def _renamed(value: Any, names: Mapping[tuple[str, ...], tuple[str, ...]], lines: Lines) -> Any:
    """Return a file's content with our names for what it calls otherwise. Where both stand, ours holds."""
    if not isinstance(value, dict):
        return value
    value = {key: dict(group) if isinstance(group, dict) else group for key, group in value.items()}
    for (group, key), (our_group, our_key) in names.items():
        foreign, ours = value.get(group), value.get(our_group, {})
        if not isinstance(foreign, dict) or not isinstance(ours, dict) or key not in foreign or our_key in ours:
            continue
        value[our_group] = {**ours, our_key: foreign[key]}
        lines.setdefault((our_group, our_key), lines.get((group, key), 1))
        value[group] = {name: part for name, part in value[group].items() if name != key}
        if not value[group]:
            del value[group]
    return value


def for_looking(places: Places, name: str) -> tuple[Config, str]:
    """Return the configuration and "", or while the file is broken the defaults and what is wrong with it."""
    try:
        return load(places, name), ""
    except BadConfig as error:
        return _defaults(name), str(error)


def _defaults(name: str) -> Config:
    """Return what holds where a file says nothing. It is not validated: the schemas' own defaults fit them."""
    found: Config = frozen(schemas.with_defaults(schemas.load(f"config/{name}"), {}))
    return found


def validated(schema: str, value: Any, lines: Lines, path: Path) -> dict[str, Any]:
    """Return the value with all defaults; BadConfig names the first line that does not fit the schema."""
    if not isinstance(value, dict):
        raise BadConfig(path=path, line=":1", key="the file", why="must hold keys and values")
    whole: dict[str, Any] = schemas.with_defaults(schemas.load(schema), value)
    try:
        return schemas.check(schema, whole, fill=False)
    except BadMessage as error:
        # The two validators differ in details, such as the last line break of a text.
        wrong = _by_line(schema, value, lines) or [((), str(error.facts["why"]))]
        raise error_at(path, lines, value, *wrong[0]) from None


def errors_in(schema: str, value: Any, lines: Lines, path: Path) -> list[BadConfig]:
    """Return everything that `validated` would refuse, from top to bottom, for people who correct the file."""
    try:
        validated(schema, value, lines, path)
    except BadConfig as first:
        wrong = _by_line(schema, value, lines) if isinstance(value, dict) else []
        return [error_at(path, lines, value, *error) for error in wrong] or [first]
    return []


def _by_line(schema: str, value: Any, lines: Lines) -> list[tuple[tuple[str | int, ...], str]]:
    return sorted(schemas.errors_in(schema, value), key=lambda error: _line(lines, error[0], value))


def error_at(path: Path, lines: Lines, value: Any, where: tuple[str | int, ...], why: str) -> BadConfig:
    """Return the error about one key, with its line."""
    key = ".".join(map(str, where)) or "top level"
    return BadConfig(path=path, line=f":{_line(lines, where, value)}", key=key, why=why)


def read_yaml(path: Path) -> tuple[Any, Lines]:
    """Return the value of a YAML file and the line of every key in it."""
    return from_yaml(read_text(path), path)


def read_text(path: Path) -> str:
    """Return the text of a configuration file."""
    try:
        return read_bytes(path).decode("utf-8")
    except BadFile as error:
        raise BadConfig(path=path, line="", key="the file", why=str(error.facts["why"])) from None
    except UnicodeDecodeError as error:
        raise BadConfig(path=path, line="", key="the file", why=f"not UTF-8 at byte {error.start}") from None


def from_yaml(text: str, path: Path) -> tuple[Any, Lines]:
    """Return the value of a YAML text and the line of every key in it; errors name `path`."""
    if _only_comments(text):
        return {}, {}
    # Loaded late: it takes longer than everything else that a quick command does.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_depth(yaml.parse(text, Loader=loader), path)
        root = yaml.compose(text, Loader=loader)
        value = yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadConfig(path=path, line=line, key="YAML", why=str(error.problem)) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfig(path=path, line="", key="YAML", why=str(error).splitlines()[0]) from None
    lines: Lines = {}
    if root is not None:
        _note_lines(root, (), lines, path)
    return ({} if value is None else value), lines


def _only_comments(text: str) -> bool:
    return all(not bare or bare.startswith("#") for bare in map(str.strip, text.splitlines()))


def _refuse_depth(events: Iterable[yaml.Event], path: Path) -> None:
    """Refuse deep nesting before anything recurses: the C library composes by recursion, and crashes when too deep."""
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            line = f":{event.start_mark.line + 1}" if event.start_mark else ""
            raise BadConfig(path=path, line=line, key="the file", why=f"nested more than {DEEPEST} deep")


def _note_lines(node: yaml.Node, at: tuple[str | int, ...], lines: Lines, path: Path) -> None:
    import yaml

    line = f":{node.start_mark.line + 1}"
    if len(lines) > MOST_KEYS:
        raise BadConfig(path=path, line=line, key="the file", why=f"more than {MOST_KEYS} keys, counting aliases")
    if len(at) > DEEPEST:
        raise BadConfig(path=path, line=line, key="the file", why=f"nested more than {DEEPEST} deep")
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode) and node.value.lower().lstrip("+-") in (".inf", ".nan"):
        raise BadConfig(path=path, line=line, key=".".join(map(str, at)), why=f"{node.value} is not a finite number")
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, part in node.value:
            if key.value in seen:
                line = f":{key.start_mark.line + 1}"
                raise BadConfig(path=path, line=line, key=key.value, why="is here a second time")
            seen.add(key.value)
            lines[(*at, key.value)] = key.start_mark.line + 1
            _note_lines(part, (*at, key.value), lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, part in enumerate(node.value):
            _note_lines(part, (*at, index), lines, path)


def _line(lines: Lines, where: tuple[str | int, ...], value: Any) -> int:
    """Return the line of a key; a missing key has its group's. Keys that YAML takes for numbers are noted as spelt."""
    group: Any = value
    spelt: tuple[str | int, ...] = ()
    for part in where:
        spelt = (*spelt, str(part) if isinstance(group, dict) else part)
        group = group[part]
    return lines.get(spelt, 1)


def frozen(value: Any) -> Any:
    """Return plain JSON as a read-only value."""
    if isinstance(value, dict):
        return MappingProxyType({key: frozen(part) for key, part in value.items()})
    if isinstance(value, list):
        return tuple(frozen(part) for part in value)
    return value


def thawed(value: Any) -> Any:
    """Return a read-only value as plain JSON again."""
    if isinstance(value, Mapping):
        return {key: thawed(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return [thawed(part) for part in value]
    return value


def zone(places: Places, system: Config) -> tzinfo:
    """Return the time zone that system.yaml names, else the machine's."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    name = system["timezone"]
    if name is None:
        return _machine_zone()
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        path = places.config / "system.yaml"
        raise BadConfig(path=path, line="", key="timezone", why=f"there is no time zone {name!r}") from None


def _machine_zone() -> tzinfo:
    """Return the machine's zone with its rules for summer time, which a bare offset from UTC does not have."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(os.environ["TZ"].removeprefix(":"))
    except (KeyError, ValueError, OSError, ZoneInfoNotFoundError):
        with suppress(OSError, ValueError), open("/etc/localtime", "rb") as rules:
            return ZoneInfo.from_file(rules)
        return UTC
