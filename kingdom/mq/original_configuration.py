"""A main_mq_configuration.json as the original manager reads it: what does not fit is left out and told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kingdom.base.home import schemas
from kingdom.base.home.schemas import Place

SCHEMA = "config/mq"
DECIDES = ("backend", "durability")
"""Keys whose values must be valid; where no backend is named, that of `mode` too."""
DATA = (
    ("sqlite", "dbPath"),
    ("hybrid", "dbPath"),
    ("hybrid", "payloadRoot"),
    ("filesystem", "root"),
    ("paths", "dataRoot"),
)
"""What names a place of data, the most telling first."""
FOLDERS = ("inboxDir", "processingDir", "archiveDir", "dlqDir", "metaDir")
PLACES = {*DATA, ("sqlite", "kvTable"), ("sqlite", "messageIndexTable"), ("ipc", "root")}
PLACES |= {("filesystem", name) for name in FOLDERS}
FAR_ENOUGH_UP = 3


def fitted(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration without what does not fit, and a sentence about each such thing.

    What says where data lie must fit: to serve another place than the one meant hides messages.
    """
    config = dict(given)
    warnings: list[str] = []
    if isinstance(config.get("queues"), list):
        config["queues"], warnings = _last_of_each_name(config["queues"])
    decides = [*DECIDES, "mode"] if "backend" not in config else DECIDES
    config, left_out = schemas.forgiving(SCHEMA, config, lambda place: _must_hold(place, decides))
    warnings += [f"{'.'.join(map(str, place))} is left out: {why}" for place, why in reversed(left_out)]
    return _at_once(config), warnings


def policy_left_behind(given: object) -> dict[str, Any]:
    """Return what is usable of a queue's policy that the original has kept with its messages."""
    if not isinstance(given, dict):
        return {}
    config, _ = schemas.forgiving(SCHEMA, {"policyDefaults": given}, lambda place: False)
    policy: dict[str, Any] = _at_once(config)["policyDefaults"]
    return policy


def _at_once(config: dict[str, Any]) -> dict[str, Any]:
    """Return a policy of the original with the delay that it means when it names none: 0."""
    defaults = config.get("policyDefaults", {})
    return {**config, "policyDefaults": {**defaults, "retry": {"initialDelaySec": 0, **defaults.get("retry", {})}}}


def _last_of_each_name(queues: list[Any]) -> tuple[list[Any], list[str]]:
    last: dict[Any, Any] = {}
    warnings: list[str] = []
    for index, entry in enumerate(queues):
        name = entry.get("name") if isinstance(entry, dict) else None
        key = name if isinstance(name, str) else index
        if key in last:
            warnings.append(f"queues names {name!r} twice: the last one holds")
        last[key] = entry
    return list(last.values()), warnings


def _must_hold(place: Place, decides: Sequence[str]) -> bool:
    return place[0] in decides or (place[0], place[-1]) in PLACES


def base_of(config: Mapping[str, Any], folder: Path) -> tuple[Path, list[str]]:
    """Return the folder at which relative paths of a file in `folder` start, and a sentence that says so.

    The original starts them at its working directory, which the file does not tell: it is where the data lie.
    """
    tried = dict.fromkeys([folder, *list(folder.parents)[:FAR_ENOUGH_UP], Path.cwd()])
    for group, key in DATA:
        path = str(config[group][key])
        for base in tried:
            if path and not path.startswith("/") and (base / path).exists():
                return base, [f"relative paths start at {base}, where {group}.{key} {path} lies"]
    return folder, []
