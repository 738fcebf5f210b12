"""What Prometheus reads of the hall."""

from __future__ import annotations

from pathlib import Path

from kingdom.court import picture
from kingdom.court.upkeep.metrics import KingdomFigures, render
from kingdom.hall.metrics import METRICS
from tests.fixtures import founded
from tests.prometheus import check_names, samples_of

WORKER = {"role": "worker", "stored": 7, "lag": 2, "dead": 1, "gaps": 0}
COUNTED = {"sockets": 3, "accepted": 8, "failed": 1, "delivered": 32, "refused_sockets": 0, "cut_sockets": 4}
GATEWAY = {"role": "gateway", **COUNTED, "unexpected_ends": 5}


def test_every_metric_of_the_hall_has_samples(home: Path) -> None:
    view = picture.take(founded(home), [], 1000.25, 120)
    view = view._replace(products={**view.products, "workers": (WORKER,), "gateways": (GATEWAY,)})
    values = samples_of(render(KingdomFigures(view)), METRICS)
    assert values["kingdom_hall_answers_total", "gateway", "accepted"] == 8
    assert values["kingdom_hall_waiting_messages", "worker"] == 2


def test_names_end_in_their_unit() -> None:
    check_names(METRICS, {"kingdom_hall_sockets", "kingdom_hall_waiting_messages"})
