"""Checks of metrics as Prometheus reads them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from prometheus_client.parser import text_string_to_metric_families

from kingdom.court.upkeep.metrics import Metric

UNITS = ("_seconds", "_ratio", "_dollars", "_total")


def samples_of(text: str, metrics: Mapping[str, Metric]) -> dict[tuple[str, ...], float]:
    """Return the samples by name and labels; each metric has some, its type and its help."""
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for name, metric in metrics.items():
        family = found[name.removesuffix("_total") if metric.type == "counter" else name]
        assert (family.type, family.documentation) == (metric.type, metric.help)
        assert family.samples, name
    return {(sample.name, *sample.labels.values()): sample.value for one in found.values() for sample in one.samples}


def check_names(metrics: Mapping[str, Metric], counted: Collection[str]) -> None:
    """Check that names are of one family and end in their unit, but those of what is `counted`."""
    for name, metric in metrics.items():
        assert re.fullmatch(r"kingdom_[a-z_]+", name)
        assert name in counted or name.endswith(UNITS), name
        assert (metric.type == "counter") == name.endswith("_total")
