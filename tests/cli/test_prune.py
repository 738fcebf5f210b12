"""`kingdom prune`: what is old goes now."""

from __future__ import annotations

import os

from tests.cli.conftest import Terminal
from tests.fixtures import event, put


def test_a_dry_run_only_counts(terminal: Terminal) -> None:
    old = put(terminal.places.home, "events", "completed", **event("evt-1"))
    os.utime(old, (0, 0))
    assert terminal.ok("prune", "--dry-run").startswith("1 file would be deleted")
    assert old.exists()


def test_in_a_home_at_rest_it_is_done_at_once(terminal: Terminal) -> None:
    old = put(terminal.places.home, "events", "completed", **event("evt-1"))
    new = put(terminal.places.home, "events", "completed", **event("evt-2"))
    os.utime(old, (0, 0))
    assert terminal.ok("prune").startswith("1 file deleted")
    assert (old.exists(), new.exists()) == (False, True)
    assert terminal.ok("prune") == "0 files deleted, 0.0 MB.\n"
