"""What Prometheus reads of the council."""

from __future__ import annotations

from pathlib import Path

from kingdom.council.metrics import METRICS
from kingdom.court import picture
from kingdom.court.upkeep.metrics import KingdomFigures, render
from tests.fixtures import founded
from tests.prometheus import check_names, samples_of

COUNTED = {"waiting": 4, "retrying": 1, "at_work": {"leader": "x.mime"}, "told": 9, "retried": 3, "buried": 2}


def test_every_metric_of_the_council_has_samples(home: Path) -> None:
    view = picture.take(founded(home), [], 1000.25, 120)
    view = view._replace(products={**view.products, "council": COUNTED})
    values = samples_of(render(KingdomFigures(view)), METRICS)
    assert values["kingdom_council_messages", "waiting"] == 4
    assert values["kingdom_council_messages", "at_work"] == 1
    assert values["kingdom_council_dead_letters_total",] == 2


def test_names_end_in_their_unit() -> None:
    check_names(METRICS, {"kingdom_council_messages"})
