"""What the council says of itself, for `kingdom status`, the metrics and the briefing."""

from typing import Any

from kingdom.base.disk.codec import read_json_or
from kingdom.base.disk.lock import is_locked
from kingdom.base.home.places import Places


def of(places: Places) -> dict[str, Any]:
    """Return its counts while it runs: waiting, retrying, at_work, told, done, retried, buried."""
    return {"council": read_json_or(places.council_figures, {}) if is_locked(places.lock("council")) else {}}
