"""config/mq.yaml, or an older main_mq_configuration.json, read into one form; and the engine opened with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kingdom.base.disk.codec import parse_json, read_bytes
from kingdom.base.durations import in_numbers
from kingdom.base.errors import BadConfig, BadFile
from kingdom.base.home import config as home_config
from kingdom.base.home import schemas
from kingdom.base.home.config import Config, Lines, frozen, thawed
from kingdom.base.home.places import Places, home_of_config
from kingdom.mq import original_configuration
from kingdom.mq.mailbox_folders import MailboxFolders

if TYPE_CHECKING:
    from kingdom.mq.engine import Engine
    from kingdom.mq.queues import EngineSettings

SCHEMA = "config/mq"
BACKEND_OF_MODE = {
    "mailbox_sqlite": "sqlite",
    "mailbox_fs": "filesystem",
    "mailbox_filesystem": "filesystem",
    "hybrid": "hybrid",
}
SAFE_ENOUGH = {"power": ("FULL", "EXTRA"), "process": ("OFF", "NORMAL", "FULL", "EXTRA")}


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The configuration of one manager, checked."""

    #: Every key of the file, with defaults; `paths` and `ipc.root` are absolute.
    config: Config
    #: The folder at which relative paths of the file start.
    base: Path
    #: The folders of the mailbox.
    box: MailboxFolders
    #: The whole policy of each named queue, as JSON.
    queues: Mapping[str, Mapping[str, Any]]
    #: Whether only named queues may be published to.
    strict: bool
    #: Sentences about keys that were overruled.
    warnings: tuple[str, ...]


def load(places: Places, file: Path | None = None) -> QueueSettings:
    """Read the home's config/mq.yaml, or a `file` of either form, whose relative paths start at its folder; those of
    another home's config/mq.yaml start at that home."""
    if file is None:
        return resolve(thawed(home_config.load(places, "mq")), places.home, places.config / "mq.yaml")
    value, lines = _read(file)
    if file.suffix != ".json" or not isinstance(value, dict):
        base = home_of_config(file) or file.absolute().parent
        ours, ignored = home_config.without_unknown("mq", value, lines, file)
        resolved = resolve(home_config.validated(SCHEMA, ours, lines, file), base, file)
        return replace(resolved, warnings=(*([ignored] if ignored else []), *resolved.warnings))
    value = schemas.with_moved_keys(SCHEMA, value)
    value, warnings = original_configuration.fitted(value)
    config = home_config.validated(SCHEMA, value, lines, file)
    base, said = original_configuration.base_of(config, file.absolute().parent)
    found = resolve(config, base, file)
    return replace(found, warnings=(*warnings, *said, *found.warnings))


def resolve(config: dict[str, Any], base: Path, file: Path) -> QueueSettings:
    """Bring a validated configuration into one form: times as numbers, absolute paths, one map of queues."""
    config = _with_times_as_numbers(config, file)
    warnings = [*_choose_backend(config), *_check_synchronous(config), *_check_journal(config)]
    paths, ipc = config["paths"], config["ipc"]
    paths["dataRoot"] = str(base / paths["dataRoot"])
    paths["logRoot"] = str(base / paths["logRoot"]) if paths["logRoot"] else ""
    ipc["root"] = str(base / ipc["root"])
    warnings += _check_template(config["sqlite"], base)
    queues, strict = _queues(config, file)
    box = MailboxFolders.at(Path(ipc["root"]), ipc)
    warnings += _check_rules(queues)
    return QueueSettings(frozen(config), base, box, frozen(queues), strict, tuple(warnings))


# The engine and what it needs load late: a command that only talks to the manager has no use for them.


def open_engine(
    settings: QueueSettings,
    clock: Callable[[], int] | None,
    log: Callable[..., None],
    wall: Callable[[], int] | None = None,
) -> Engine:
    """Open the configured store with an engine over it. Locked when another process holds the store."""
    from kingdom.mq import engine
    from kingdom.mq.stores.base import StoreConfig

    config = StoreConfig(settings.config, settings.base)
    return engine.open_engine(config, settings=_engine_settings(settings), clock=clock, wall=wall, log=log)


def apply_policies(engine: Engine, settings: QueueSettings) -> None:
    """Give the queues of an open engine the policies that they have by these settings."""
    engine.queues.configure(_engine_settings(settings))


def _engine_settings(settings: QueueSettings) -> EngineSettings:
    from kingdom.mq.policy import Policy
    from kingdom.mq.queues import EngineSettings

    return EngineSettings(
        defaults=Policy.from_json(thawed(settings.config["policyDefaults"])),
        queues={queue: Policy.from_json(thawed(policy)) for queue, policy in settings.queues.items()},
        strict=settings.strict,
    )


def _read(file: Path) -> tuple[Any, Lines]:
    try:
        if file.suffix != ".json":
            return home_config.read_yaml(file)
        return parse_json(read_bytes(file)), {}
    except FileNotFoundError:
        raise BadConfig(path=file, line="", key="the file", why="is not there") from None
    except BadFile as error:
        raise BadConfig(path=file, line="", key="the file", why=str(error.facts["why"])) from None
    except ValueError as error:
        raise BadConfig(path=file, line="", key="JSON", why=str(error)) from None


def _with_times_as_numbers(config: dict[str, Any], file: Path) -> dict[str, Any]:
    """Turn `30s` into a number in the unit of its key; what is out of range then is an error as a number is."""
    try:
        found: dict[str, Any] = in_numbers(config)
    except ValueError as error:
        raise BadConfig(path=file, line="", key="a time", why=str(error)) from None
    return config if found == config else home_config.validated(SCHEMA, found, {}, file)


def _choose_backend(config: dict[str, Any]) -> list[str]:
    mode = config.get("mode")
    by_mode = BACKEND_OF_MODE.get(mode or "", "sqlite")
    backend = config.get("backend", by_mode)
    config["backend"] = {"fs": "filesystem"}.get(backend, backend)
    if mode is not None and config["backend"] != by_mode:
        return [f"backend {backend} decides: messages lie there, and mode {mode} has no effect"]
    return []


def _check_synchronous(config: dict[str, Any]) -> list[str]:
    asked = config["sqlite"].get("synchronous", "FULL").upper()
    if asked in SAFE_ENOUGH[config["durability"]]:
        return []
    return [f"durability {config['durability']} wins over sqlite.synchronous {asked}: commits are synced"]


def _check_journal(config: dict[str, Any]) -> list[str]:
    asked = config["sqlite"]["journalMode"].upper()
    if asked not in ("MEMORY", "OFF"):
        return []
    config["sqlite"]["journalMode"] = "WAL"
    durability = config["durability"]
    return [f"durability {durability} wins over sqlite.journalMode {asked}, which outlives no kill: it is WAL"]


def _check_template(sqlite: dict[str, Any], base: Path) -> list[str]:
    path = sqlite["schemaPath"]
    if not path or (base / path).is_file():
        return []
    sqlite["schemaPath"] = ""
    return [f"sqlite.schemaPath {path} is not there: the tables are made as ours are"]


def _check_rules(queues: Mapping[str, Mapping[str, Any]]) -> list[str]:
    from kingdom.mq.payload_rules import usable

    found = ((name, policy.get("messageSchema", {}).get("rules")) for name, policy in queues.items())
    return [f"queue {name}: {why}" for name, rules in found if rules for why in usable(rules)[1]]


def _queues(config: dict[str, Any], file: Path) -> tuple[dict[str, Any], bool]:
    """Return one map of whole policies, and whether it is strict. What a queue does not say, policyDefaults say."""
    defaults = config["policyDefaults"]
    defaults.setdefault("visibilityTimeoutSec", config["lease"]["visibilityTimeoutSec"])
    given = config["queues"]
    strict = False
    if isinstance(given, list):
        names = [entry["name"] for entry in given]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadConfig(path=file, line="", key="queues", why=f"names {twice[0]!r} twice")
        given = {entry["name"]: {key: part for key, part in entry.items() if key != "name"} for entry in given}
    elif isinstance(given.get("strict"), bool):
        strict = given["strict"]
        given = {name: entry for name, entry in given.items() if name != "strict"}
    return {name: _whole_policy(defaults, entry) for name, entry in given.items()}, strict


def _whole_policy(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: part for key, part in own.items() if key != "policy"}
    return _merged(_merged(defaults, own.get("policy", {})), flat)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: dict(part) if isinstance(part, dict) else part for key, part in below.items()}
    for key, part in above.items():
        both = isinstance(part, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], part) if both else part
    return merged
