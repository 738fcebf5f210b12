"""The secrets of `.env`, and how each may appear in a text. Light: serving processes load it."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping

from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadConfig, BadInput
from kingdom.base.home.places import Places
from kingdom.base.words import printable

SHORTEST_SECRET = 6
"""Shorter values would hide ordinary words."""
_QUOTED = re.compile(r"""(["'])(.*?)\1\s*(#.*)?$""")
_COMMENT = re.compile(r"(^|\s+)#.*$")


def secrets(places: Places) -> dict[str, str]:
    """Return what `.env` holds. Every role reads it itself; a file that others can read is refused."""
    path = places.env_file
    try:
        about = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return {}
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadConfig(path=path, line="", key="permissions", why="others may read it; run `chmod 600` on it")
    return lines(places)[0]


def lines(places: Places) -> tuple[dict[str, str], list[int]]:
    """Return what `.env` sets, and the numbers of the lines that set nothing."""
    found: dict[str, str] = {}
    odd: list[int] = []
    try:
        text = read_bytes(places.env_file).decode("utf-8", "replace")
    except FileNotFoundError:
        return {}, []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip().removeprefix("export ")
        name, equals, value = bare.partition("=")
        if equals and name.strip().isidentifier():
            found[name.strip()] = _value(value.strip())
        elif bare and not bare.startswith("#"):
            odd.append(number)
    return found, odd


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return the text of `.env` with these values; every other line stays as it is.

    BadInput for a value that cannot stand in one line.
    """
    left = {name: f"{name}={_spelt(name, value)}" for name, value in values.items()}
    kept: list[str] = []
    for line in text.removesuffix("\n").split("\n") if text else ():
        name = line.strip().removeprefix("export ").partition("=")[0].strip()
        if name not in values:
            kept.append(line)
        elif name in left:
            kept.append(left.pop(name))
    return "".join(f"{line}\n" for line in [*kept, *left.values()])


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which none of these secrets can be read."""
    for secret in forms(secrets):
        text = text.replace(secret, "[hidden]")
    return text


def forms(secrets: Iterable[str]) -> list[str]:
    """Return what to look for in a text that may show these secrets, the longest first: one may contain another."""
    long_enough = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]
    as_json = [json.dumps(secret, ensure_ascii=False)[1:-1] for secret in long_enough]
    return sorted({*long_enough, *as_json, *map(printable, long_enough)}, key=len, reverse=True)


def _value(text: str) -> str:
    """Return a value without its quotes, or without the comment behind it."""
    if (quoted := _QUOTED.match(text)) is not None:
        return quoted[2]
    return _COMMENT.sub("", text).strip("\"'")


def _spelt(name: str, value: str) -> str:
    """Return a value so that `_value` reads it back."""
    for spelt in (value, f'"{value}"', f"'{value}'"):
        if value.isprintable() and _value(spelt.strip()) == value:
            return spelt
    raise BadInput(
        message=f"{name} cannot stand in .env: it has line breaks, control characters or both kinds of quotes"
    )
