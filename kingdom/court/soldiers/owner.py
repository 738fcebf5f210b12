"""What a soldier's HOME gets from the owner's and from its general's package: only named files, as copies.

`runtime.bring` of config/system.yaml names what may be brought in.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from subprocess import DEVNULL, PIPE, run
from typing import Any

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_json, text_of
from kingdom.base.errors import BadFile
from kingdom.base.home.manifests import Manifest
from kingdom.base.home.places import Places
from kingdom.court.soldiers.engines.base import Surroundings

CREDENTIALS, PLUGINS, GIT = "credentials", "plugins", "git"
SIGNED_IN = (".claude/.credentials.json", ".codex/auth.json")
KINGDOM = {"name": "Kingdom", "email": "kingdom@localhost"}
"""In whose name soldiers commit when nobody is named."""
SYSTEM_GIT_CONFIG = "/etc/gitconfig"
OWNERS_GIT = (".config/git/config", ".gitconfig")
HARMLESS_GIT = re.compile(
    r"(?:advice|alias|apply|checkout|color|column|fetch|grep|i18n|log|merge|pull|rebase|rerere|stash|status|switch)"
    r"\.[a-z0-9-]+|branch\.autosetup(?:merge|rebase)|core\.(?:abbrev|autocrlf|eol|quotepath|safecrlf|whitespace)"
    r"|diff\.(?:algorithm|colormoved|context|mnemonicprefix|noprefix|renames)|init\.defaultbranch"
    r"|push\.(?:autosetupremote|default|followtags)"
)
"""Settings without a secret, and without a program that git would start: no hooks, helpers, keys or addresses."""
SHORTEST_TOKEN = 20
"""Shorter texts in such files are names and dates."""


class Furnishing:
    """Lays files into a HOME that nobody else writes meanwhile."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def write(self, name: str, text: str) -> None:
        path = self._home / name
        make_folder(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)

    def link(self, name: str, target: Path) -> None:
        path = self._home / name
        make_folder(path.parent)
        path.symlink_to(target)

    def copy(self, name: str, source: Path) -> None:
        """Copy a folder's content; existing files stay."""
        for path in sorted(source.rglob("*")):
            target = self._home / name / path.relative_to(source)
            if path.is_file() and not target.exists():
                make_folder(target.parent)
                shutil.copyfile(path, target)


def has_variable(services: Surroundings, names: Iterable[str]) -> bool:
    """Return whether one of these is set, in `.env` or in the environment."""
    return any(services.secrets.get(name) or os.environ.get(name) for name in names)


def credentials(runtime: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return what the owner is signed in with, if it may be brought in; None when there is nothing."""
    return _json_of_owner(name) if CREDENTIALS in runtime["bring"] else None


def lent_secrets(runtime: Mapping[str, Any]) -> list[str]:
    """Return every token in what the owner is signed in with, as far as it may be brought in."""
    found: list[str] = []
    for name in SIGNED_IN:
        parts: list[Any] = [credentials(runtime, name)]
        while parts:
            part = parts.pop()
            if isinstance(part, dict | list):
                parts += part.values() if isinstance(part, dict) else part
            elif isinstance(part, str) and len(part) >= SHORTEST_TOKEN:
                found.append(part)
    return found


def claude_plugins(runtime: Mapping[str, Any]) -> dict[str, Path]:
    """Return the folders of the owner's enabled plug-ins of Claude Code by `name@market`, if they may be brought in."""
    if PLUGINS not in runtime["bring"]:
        return {}
    enabled = (_json_of_owner(".claude/settings.json") or {}).get("enabledPlugins")
    installed = (_json_of_owner(".claude/plugins/installed_plugins.json") or {}).get("plugins")
    if not isinstance(enabled, dict) or not isinstance(installed, dict):
        return {}
    found: dict[str, Path] = {}
    for name, is_enabled in enabled.items():
        rows = installed.get(name)
        for row in rows if isinstance(rows, list) else [rows]:
            if is_enabled and isinstance(row, dict) and os.path.isdir(folder := str(row.get("installPath"))):
                found[name] = Path(folder)
    return found


def plugin(found: Mapping[str, Path], name: str) -> Path | None:
    """Return the folder of a plug-in that a manifest names, as `name` or `name@market`."""
    return next((folder for known, folder in found.items() if name in (known, known.partition("@")[0])), None)


def git_identity(runtime: Mapping[str, Any]) -> str | None:
    """Return a git configuration with the configured name and address, or with the owner's.

    None when none are configured, and the owner has none or does not bring them in.
    """
    if has_git_identity(runtime):
        return _identity({**KINGDOM, **{key: value for key, value in runtime["git"].items() if value}})
    if GIT not in runtime["bring"]:
        return None
    found = _git_config("--get-regexp", r"^user\.(name|email)$")
    lines = [line.partition(" ") for line in found.splitlines()]
    return _identity({key.partition(".")[2]: value for key, _, value in lines}) if lines else None


def has_git_identity(runtime: Mapping[str, Any]) -> bool:
    """Return whether it is configured in whose name soldiers commit."""
    return any(runtime["git"].values())


def lay_git_config(
    places: Places, disk: Disk, manifest: Manifest, runtime: Mapping[str, Any], *, has_own_home: bool
) -> dict[str, str]:
    """Lay the configuration of git for a general's soldiers, and return the variables by which git finds it.

    Without a name no commit could be made.
    """
    path, wins = places.git_config(manifest.name), not has_own_home and has_git_identity(runtime)
    owners = git_settings(sandbox=manifest.sandbox) if wins else ""
    configured = git_identity(runtime) if has_git_identity(runtime) else ""
    # Of each name the last one counts.
    text = f"{_identity(KINGDOM)}[include]\n\tpath = {SYSTEM_GIT_CONFIG}\n{owners}{configured}"
    if text_of(path) != text:
        make_folder(path.parent)
        disk.rewrite(path, text.encode())
    if wins:  # over the name in the owner's HOME; a file that is read as both gives each setting twice
        return {"GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_GLOBAL": str(path)}
    return {"GIT_CONFIG_SYSTEM": str(path)}


def git_settings(*, sandbox: bool) -> str:
    """Return the owner's git configuration; in a sandbox only what is no secret and starts nothing."""
    if sandbox:
        rows = (row.partition("\n") for row in _git_config("--list", "--includes", "-z").split("\0"))
        return "".join(_setting(key, is_set, value) for key, is_set, value in rows if _is_harmless(key, value))
    files = (os.path.expanduser(f"~/{name}") for name in OWNERS_GIT)
    return "".join(f"[include]\n\tpath = {_quoted(file)}\n" for file in files)


def _is_harmless(key: str, value: str) -> bool:
    starts_program = key.startswith("alias.") and value.startswith("!")
    return not starts_program and HARMLESS_GIT.fullmatch(key) is not None and value.isprintable()


def _setting(key: str, is_set: str, value: str) -> str:
    section, _, name = key.partition(".")
    return f"[{section}]\n\t{name}{f' = {_quoted(value)}' if is_set else ''}\n"


def _git_config(*words: str) -> str:
    """Return what git says of the owner's own configuration; "" when it says nothing."""
    asked, environment = ["git", "config", *words], {**os.environ, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        found = run(asked, cwd="/", env=environment, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, check=False)
    except OSError:
        return ""
    return found.stdout.decode("utf-8", "replace")


def _identity(named: Mapping[str, str]) -> str:
    rows = "".join(f"\t{key} = {_quoted(value)}\n" for key, value in named.items())
    return f"[user]\n{rows}"


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def of_package(places: Places, general: str, kind: str, engine: str) -> Iterator[Path]:
    """Yield where a general keeps its agents or skills: in its package, or installed beside others'.

    A folder for the engine wins over the one for all.
    """
    for folder in (places.package(general) / kind, places.extras(kind) / general):
        if (folder / engine).is_dir():
            yield folder / engine
        elif folder.is_dir():
            yield folder


def _json_of_owner(name: str) -> dict[str, Any] | None:
    try:
        return read_json(Path.home() / name)
    except (OSError, BadFile, RuntimeError):
        return None
