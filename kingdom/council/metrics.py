"""KingdomFigures of the council for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kingdom.court.upkeep.metrics import KingdomFigures, Metric, Sample


def _council(*states: str) -> Callable[[KingdomFigures], Iterator[Sample]]:
    def samples(figures: KingdomFigures) -> Iterator[Sample]:
        for state in states:
            value = figures.picture.products["council"].get(state)
            if isinstance(value, int | dict):
                yield {"state": state}, value if isinstance(value, int) else len(value)

    return samples


def _of_council(key: str) -> Callable[[KingdomFigures], Iterator[Sample]]:
    def samples(figures: KingdomFigures) -> Iterator[Sample]:
        if isinstance(figures.picture.products["council"].get(key), int):
            yield {}, figures.picture.products["council"][key]

    return samples


METRICS: Mapping[str, Metric] = {
    "kingdom_council_messages": Metric(
        "gauge",
        "Messages of the council that wait, are to be retried, or are worked on.",
        _council("waiting", "retrying", "at_work"),
    ),
    "kingdom_council_told_total": Metric(
        "counter", "How often the council told an agent of a message since its start.", _of_council("told")
    ),
    "kingdom_council_retries_total": Metric(
        "counter",
        "How often a message of the council failed and waits for another try, since the start.",
        _of_council("retried"),
    ),
    "kingdom_council_dead_letters_total": Metric(
        "counter", "Messages that the council gave up since its start.", _of_council("buried")
    ),
}
