"""`kingdom metrics`: metrics for Prometheus."""

from __future__ import annotations

import time
from typing import Any

import click

from kingdom.base.disk.codec import read_json_or
from kingdom.base.home import config
from kingdom.base.program import home
from kingdom.cli import money
from kingdom.court import picture
from kingdom.court.upkeep.metrics import KingdomFigures, render


@click.command(short_help="Print metrics for Prometheus.")
def metrics() -> None:
    """Print the kingdom's metrics in the text format of Prometheus.

    The chamberlain writes the same every 30 s to state/chamberlain/kingdom.prom, for the textfile collector of the node
    exporter: link that file into its folder.
    """
    places, now = home.find(), time.time()
    places.check()
    system, _ = config.for_looking(places, "system")
    totals: dict[str, Any] = read_json_or(places.analysis / "stats.json", {}).get("totals", {})
    gathered = money.gather(places, now, None)
    budgets = [(share.name, share.general, share.spent, share.budget) for share in gathered.budgets]
    today = {general: round(spent.usd, 6) for general, spent in gathered.generals.items()}
    print(render(KingdomFigures(picture.of(places, system, now), totals, budgets, today)), end="")
