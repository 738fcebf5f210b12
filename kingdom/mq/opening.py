"""From settings to an open engine: for the manager, and for `yirangmq --direct`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kingdom.home.config import thawed
from kingdom.mq.configuration import Settings
from kingdom.mq.engine import Engine, open_engine
from kingdom.mq.policy import Policy
from kingdom.mq.queues import EngineSettings
from kingdom.mq.stores.base import Plan


def plan(settings: Settings) -> Plan:
    config = settings.config
    sqlite = config["sqlite"]
    index = config["hybrid"]["dbPath"] if config["backend"] == "hybrid" else sqlite["dbPath"]
    return Plan(
        root=Path(config["paths"]["dataRoot"]),
        durability=config["durability"],
        files=Path(config["filesystem"]["root"]),
        payloads=Path(config["hybrid"]["payloadRoot"]),
        database=Path(index),
        kv_table=sqlite["kvTable"],
        index_table=sqlite["messageIndexTable"],
        schema=Path(sqlite["schemaPath"]) if sqlite["schemaPath"] else None,
        journal_mode=sqlite["journalMode"],
        busy_timeout_ms=sqlite["busyTimeoutMs"],
        folders={key.removesuffix("Dir"): name for key, name in config["filesystem"].items() if key.endswith("Dir")},
        archive_keep_ms=int(config["archiveDays"] * 86_400_000),
        check_on_start=config["hybrid"]["consistencyCheckOnStart"],
    )


def engine(settings: Settings, clock: Callable[[], int], say: Callable[..., None]) -> Engine:
    """Locked when another process holds the store."""
    rules = EngineSettings(
        defaults=Policy.from_json(thawed(settings.config["policyDefaults"])),
        queues=policies(settings),
        strict=settings.strict,
    )
    return open_engine(settings.config["backend"], plan(settings), settings=rules, clock=clock, say=say)


def policies(settings: Settings) -> dict[str, Policy]:
    return {queue: Policy.from_json(thawed(policy)) for queue, policy in settings.queues.items()}


def apply_policies(engine: Engine, settings: Settings) -> None:
    for queue, policy in policies(settings).items():
        engine.queues.set_policy(queue, policy)
