"""`kingdom prune`: what is old goes now."""

from __future__ import annotations

import os
import threading
from contextlib import closing

import pytest

from kingdom.base.disk.codec import read_json
from tests.cli.conftest import Held, Terminal
from tests.fixtures import event, put, write
from tests.waiting import SOON, wait_until


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


def test_a_chamberlain_that_runs_does_it_and_one_that_does_not_begin_is_not_waited_for(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = terminal.places

    def clean() -> None:
        wait_until(places.cleanup_request.exists, SOON, "it is asked")
        request = read_json(places.cleanup_request)["id"]
        for state, number in (("at work", 1), ("done", 2)):
            deleted = {"task": number}
            write(places.cleanup, {"request": request, "state": state, "deleted": deleted, "bytes": 3 << 20})

    with closing(Held(places, "chamberlain")):
        chamberlain = threading.Thread(target=clean)
        chamberlain.start()
        said = terminal.ok("prune").splitlines()
        chamberlain.join()
        assert (said[0], said[1].split()) == ("2 files deleted, 3.0 MB.", ["task", "2"])
        monkeypatch.setattr("kingdom.cli.prune.PATIENCE_SECONDS", 0.0)
        assert terminal("prune").code == 4
