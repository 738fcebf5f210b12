"""What Prometheus reads: its own parser takes it, and the names and types keep its conventions."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kingdom.court import picture
from kingdom.court.chamberlain.job import ChamberlainJob
from kingdom.court.picture import RoleView
from kingdom.court.upkeep.metrics import METRICS, KingdomFigures, render
from tests.fixtures import Clock, event, founded, put, services

UNITS = ("_seconds", "_ratio", "_dollars", "_total")
COUNTED = {
    "kingdom_queue_files",
    "kingdom_role_up",
    "kingdom_role_restarts",
    "kingdom_soldiers",
    "kingdom_open_questions",
    "kingdom_machine_health",
    "kingdom_hall_sockets",
    "kingdom_hall_waiting_messages",
    "kingdom_council_messages",
}


def test_the_parser_of_prometheus_reads_every_metric_with_its_type_and_its_help(home: Path) -> None:
    put(home, "events", "pending", **event()) if founded(home) else None
    odd = RoleView('gen-"odd\\\n', "idle", 7, 1.5, 10.0, 2)
    view = picture.take(founded(home), [], 1000.25, 120)._replace(roles=(odd,), health="yellow")
    view = view._replace(vitals={"cpu_percent": 50.0, "memory_percent": 25, "disk_percent": 1.5})
    worker = {"role": "worker", "stored": 7, "lag": 2, "dead": 1, "gaps": 0}
    gateway = {"role": "gateway", "sockets": 3, "accepted": 8, "failed": 1, "delivered": 32}
    gateway |= {"refused_sockets": 0, "cut_sockets": 4, "unexpected_ends": 5}
    view = view._replace(workers=(worker,), gateways=(gateway,))
    council = {"waiting": 4, "retrying": 1, "at_work": {"leader": "x.mime"}, "told": 9, "retried": 3, "buried": 2}
    view = view._replace(council=council)
    budgets = [("day_usd", "", 1.25, 10.0)]
    text = render(KingdomFigures(view, {"task_completed": 3}, budgets, {"gen-pr": 1.25}))
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for name, metric in METRICS.items():
        family = found[name.removesuffix("_total") if metric.type == "counter" else name]
        assert (family.type, family.documentation) == (metric.type, metric.help)
        assert family.samples, name
    values = {(sample.name, *sample.labels.values()): sample.value for one in found.values() for sample in one.samples}
    assert values["kingdom_queue_files", "events", "pending"] == 1
    assert values["kingdom_role_up", odd.name] == 1
    assert values["kingdom_machine_health", "yellow"] == 1
    assert values["kingdom_machine_cpu_used_ratio",] == 0.5
    assert values["kingdom_hall_answers_total", "gateway", "accepted"] == 8
    assert values["kingdom_hall_waiting_messages", "worker"] == 2
    assert values["kingdom_council_messages", "waiting"] == 4
    assert values["kingdom_council_messages", "at_work"] == 1
    assert values["kingdom_council_dead_letters_total",] == 2
    assert values["kingdom_internal_events_total", "task_completed"] == 3
    assert values["kingdom_budget_spent_dollars", "day_usd", ""] == 1.25
    assert values["kingdom_taken_timestamp_seconds",] == 1000.25


def test_names_are_of_one_family_and_end_in_their_unit() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"kingdom_[a-z_]+", name)
        assert name in COUNTED or name.endswith(UNITS), name
        assert (metric.type == "counter") == name.endswith("_total")


def test_the_chamberlain_keeps_them_for_the_textfile_collector(home: Path) -> None:
    ours = services(home, "chamberlain", Clock())
    ChamberlainJob(ours).turn(None)
    names = {family.name for family in text_string_to_metric_families(ours.places.metrics.read_text())}
    assert {"kingdom_queue_files", "kingdom_internal_events", "kingdom_role_up"} <= names
