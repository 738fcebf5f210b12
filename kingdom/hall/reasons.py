"""What keeps messages from being posted in the hall."""

from __future__ import annotations

from kingdom.base.disk.lock import is_locked
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.court.reasons import Reasons


def keeps_messages(reasons: Reasons) -> str | None:
    """Return that no worker runs, where the envoy posts in the hall; None when nothing keeps messages."""
    if not _is_default(reasons.places) or any(map(is_locked, reasons.places.state.glob("worker*/lock"))):
        return None
    return reasons.does_not_run("worker")


def _is_default(places: Places) -> bool:
    """Return whether the hall is where the envoy posts what belongs nowhere else: see its channels."""
    roles, envoy = (config.for_looking(places, name)[0] for name in ("system", "envoy"))
    is_on = roles["roles"]["gateway"] and roles["roles"]["worker"]
    return bool(is_on) and (envoy.get("channel") or ("slack" if "slack" in envoy else "hall")) == "hall"
