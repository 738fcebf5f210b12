"""What Prometheus reads: its own parser takes it, and the names and types keep its conventions."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kingdom.court import picture
from kingdom.court.chamberlain.job import ChamberlainJob
from kingdom.court.picture import RoleView
from kingdom.court.upkeep.metrics import METRICS, KingdomFigures, render
from tests.fixtures import Clock, event, founded, put, services
from tests.prometheus import check_names, samples_of

COUNTED = {
    "kingdom_queue_files",
    "kingdom_role_up",
    "kingdom_role_restarts",
    "kingdom_soldiers",
    "kingdom_open_questions",
    "kingdom_machine_health",
}


def test_the_parser_of_prometheus_reads_every_metric_with_its_type_and_its_help(home: Path) -> None:
    put(home, "events", "pending", **event()) if founded(home) else None
    odd = RoleView('gen-"odd\\\n', "idle", 7, 1.5, 10.0, 2)
    view = picture.take(founded(home), [], 1000.25, 120)._replace(roles=(odd,), health="yellow")
    view = view._replace(vitals={"cpu_percent": 50.0, "memory_percent": 25, "disk_percent": 1.5})
    budgets = [("day_usd", "", 1.25, 10.0)]
    text = render(KingdomFigures(view, {"task_completed": 3}, budgets, {"gen-pr": 1.25}))
    values = samples_of(text, METRICS)
    assert values["kingdom_queue_files", "events", "pending"] == 1
    assert values["kingdom_role_up", odd.name] == 1
    assert values["kingdom_machine_health", "yellow"] == 1
    assert values["kingdom_machine_cpu_used_ratio",] == 0.5
    assert values["kingdom_internal_events_total", "task_completed"] == 3
    assert values["kingdom_budget_spent_dollars", "day_usd", ""] == 1.25
    assert values["kingdom_taken_timestamp_seconds",] == 1000.25


def test_names_are_of_one_family_and_end_in_their_unit() -> None:
    check_names(METRICS, COUNTED)


def test_the_chamberlain_keeps_them_for_the_textfile_collector(home: Path) -> None:
    ours = services(home, "chamberlain", Clock())
    ChamberlainJob(ours).turn(None)
    names = {family.name for family in text_string_to_metric_families(ours.places.metrics.read_text())}
    assert {"kingdom_queue_files", "kingdom_internal_events", "kingdom_role_up"} <= names
