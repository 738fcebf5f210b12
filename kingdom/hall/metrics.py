"""KingdomFigures of the hall for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kingdom.court.upkeep.metrics import KingdomFigures, Metric, Sample


def _of_hall(key: str, *, gateway: bool = False) -> Callable[[KingdomFigures], Iterator[Sample]]:
    def samples(figures: KingdomFigures) -> Iterator[Sample]:
        for said in figures.picture.products["gateways" if gateway else "workers"]:
            if isinstance(said.get(key), int):
                yield {"role": str(said["role"])}, said[key]

    return samples


def _answers(figures: KingdomFigures) -> Iterator[Sample]:
    for said in figures.picture.products["gateways"]:
        for outcome in ("accepted", "failed"):
            if isinstance(said.get(outcome), int):
                yield {"role": str(said["role"]), "outcome": outcome}, said[outcome]


METRICS: Mapping[str, Metric] = {
    "kingdom_hall_sockets": Metric("gauge", "Sockets of a gateway.", _of_hall("sockets", gateway=True)),
    "kingdom_hall_answers_total": Metric(
        "counter", "Messages that a gateway accepted or failed since its start.", _answers
    ),
    "kingdom_hall_delivered_total": Metric(
        "counter", "Messages that a gateway wrote to sockets since its start.", _of_hall("delivered", gateway=True)
    ),
    "kingdom_hall_refused_sockets_total": Metric(
        "counter", "Sockets that a gateway refused since its start.", _of_hall("refused_sockets", gateway=True)
    ),
    "kingdom_hall_cut_sockets_total": Metric(
        "counter", "Slow sockets that a gateway cut since its start.", _of_hall("cut_sockets", gateway=True)
    ),
    "kingdom_hall_unexpected_ends_total": Metric(
        "counter",
        "Sockets that a gateway ended for no known reason since its start.",
        _of_hall("unexpected_ends", gateway=True),
    ),
    "kingdom_hall_stored_total": Metric(
        "counter", "Messages that a worker stored since its start.", _of_hall("stored")
    ),
    "kingdom_hall_waiting_messages": Metric("gauge", "Messages that wait for the worker.", _of_hall("lag")),
    "kingdom_hall_dead_letters_total": Metric(
        "counter", "Messages that a worker could not store since its start.", _of_hall("dead")
    ),
    "kingdom_hall_gaps_total": Metric(
        "counter", "How often messages were removed before a worker had read them.", _of_hall("gaps")
    ),
}
