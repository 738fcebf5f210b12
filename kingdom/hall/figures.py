"""What the roles of the hall say of themselves, for `kingdom status`, the metrics and the briefing.

Annotations are no text here: status loads this, and must be quick.
"""

from collections.abc import Iterator
from typing import Any

from kingdom.base.disk.codec import read_json_or
from kingdom.base.disk.lock import is_locked
from kingdom.base.home.places import Places


def of(places: Places) -> dict[str, Any]:
    return {"workers": tuple(workers(places)), "gateways": tuple(gateways(places))}


def workers(places: Places) -> Iterator[dict[str, Any]]:
    """Yield what the workers of the hall last said of themselves, each under its role's name."""
    for path in places.worker_snapshots():
        if said := read_json_or(path, {}):
            yield {"role": path.parent.name, **said}


def gateways(places: Places) -> Iterator[dict[str, Any]]:
    """Yield what each gateway that runs has counted since its start, and its `address`, or `why` it has none."""
    for path in places.gateways_figures():
        if is_locked(places.lock(path.parent.name)) and (said := read_json_or(path, {})):
            yield {"role": path.parent.name, **said}
