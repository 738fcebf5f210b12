"""What config/mq.yaml says, or an older main_mq_configuration.json, in one form: absolute paths, one map of queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kingdom.disk.codec import parse_json, read_bytes
from kingdom.errors import BadConfig, BadFile
from kingdom.home import config as configuration
from kingdom.home.config import Config, Lines, frozen, thawed
from kingdom.home.places import Places
from kingdom.mq.mailbox_folders import Box

SCHEMA = "config/mq"
BACKEND_OF_MODE = {
    "mailbox_sqlite": "sqlite",
    "mailbox_fs": "filesystem",
    "mailbox_filesystem": "filesystem",
    "hybrid": "hybrid",
}
SAFE_ENOUGH = {"power": ("FULL", "EXTRA"), "process": ("OFF", "NORMAL", "FULL", "EXTRA")}


@dataclass(frozen=True, slots=True)
class Settings:
    """`config` holds every key; `queues` each named queue's whole policy; `warnings` what was overruled."""

    config: Config
    box: Box
    queues: Mapping[str, Mapping[str, Any]]
    strict: bool
    warnings: tuple[str, ...]


def load(places: Places, file: Path | None = None) -> Settings:
    """From the home's config/mq.yaml, or from a file of either form, whose relative paths start at its folder."""
    if file is None:
        return settled(thawed(configuration.load(places, "mq")), places.home, places.config / "mq.yaml")
    value, lines = _read(file)
    return settled(configuration.validated(SCHEMA, value, lines, file), file.absolute().parent, file)


def box_of_home(places: Places) -> Box:
    """Where the home's mailbox is, without the rest: a command line has no time to check a whole file."""
    try:
        value, _ = configuration.read_yaml(places.config / "mq.yaml")
    except FileNotFoundError:
        value = {}
    ipc = value.get("ipc") if isinstance(value, dict) else None
    ipc = ipc if isinstance(ipc, dict) else {}
    return Box.at(places.home / str(ipc["root"]) if "root" in ipc else places.mailbox, ipc)


def settled(config: dict[str, Any], base: Path, file: Path) -> Settings:
    warnings = [*_choose_backend(config), *_check_synchronous(config)]
    _place(config, base)
    queues, strict = _queues(config, file)
    box = Box.at(base / config["ipc"]["root"], config["ipc"])
    return Settings(frozen(config), box, frozen(queues), strict, tuple(warnings))


def _read(file: Path) -> tuple[Any, Lines]:
    try:
        if file.suffix != ".json":
            return configuration.read_yaml(file)
        return parse_json(read_bytes(file)), {}
    except FileNotFoundError:
        raise BadConfig(path=file, line="", key="the file", why="is not there") from None
    except BadFile as trouble:
        raise BadConfig(path=file, line="", key="the file", why=str(trouble.facts["why"])) from None
    except ValueError as trouble:
        raise BadConfig(path=file, line="", key="JSON", why=str(trouble)) from None


def _choose_backend(config: dict[str, Any]) -> list[str]:
    named = {"fs": "filesystem"}.get(config["backend"], config["backend"])
    config["backend"] = BACKEND_OF_MODE.get(config.get("mode", ""), named)
    if config["backend"] != named:
        return [f"mode {config['mode']} wins over backend {named}: messages lie in {config['backend']}"]
    return []


def _check_synchronous(config: dict[str, Any]) -> list[str]:
    asked = config["sqlite"].get("synchronous", "FULL").upper()
    if asked in SAFE_ENOUGH[config["durability"]]:
        return []
    return [f"durability {config['durability']} wins over sqlite.synchronous {asked}: commits are synced"]


def _place(config: dict[str, Any], base: Path) -> None:
    """Every path made absolute, the empty ones filled in from paths.dataRoot."""
    paths, sqlite, hybrid = config["paths"], config["sqlite"], config["hybrid"]
    data = base / paths["dataRoot"]
    paths["dataRoot"] = str(data)
    paths["logRoot"] = str(base / paths["logRoot"]) if paths["logRoot"] else ""
    config["ipc"]["root"] = str(base / config["ipc"]["root"])
    sqlite["dbPath"] = str(base / (sqlite["dbPath"] or data / "yirangmq.db"))
    sqlite["schemaPath"] = str(base / sqlite["schemaPath"]) if sqlite["schemaPath"] else ""
    config["filesystem"]["root"] = str(base / (config["filesystem"]["root"] or data / "fs"))
    hybrid["payloadRoot"] = str(base / (hybrid["payloadRoot"] or data / "payloads"))
    hybrid["dbPath"] = str(base / (hybrid["dbPath"] or sqlite["dbPath"]))


def _queues(config: dict[str, Any], file: Path) -> tuple[dict[str, Any], bool]:
    """One map of whole policies: what a queue does not say comes from policyDefaults."""
    defaults = config["policyDefaults"]
    defaults.setdefault("visibilityTimeoutSec", config["lease"]["visibilityTimeoutSec"])
    given = config["queues"]
    strict = False
    if isinstance(given, list):
        names = [each["name"] for each in given]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadConfig(path=file, line="", key="queues", why=f"names {twice[0]!r} twice")
        given = {each["name"]: {key: part for key, part in each.items() if key != "name"} for each in given}
    elif isinstance(given.get("strict"), bool):
        strict = given["strict"]
        given = {name: each for name, each in given.items() if name != "strict"}
    return {name: _whole(defaults, each) for name, each in given.items()}, strict


def _whole(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: part for key, part in own.items() if key != "policy"}
    return _over(_over(defaults, own.get("policy", {})), flat)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: dict(part) if isinstance(part, dict) else part for key, part in below.items()}
    for key, part in above.items():
        both = isinstance(part, dict) and isinstance(merged.get(key), dict)
        merged[key] = _over(merged[key], part) if both else part
    return merged
