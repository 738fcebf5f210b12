"""The checked-in supervisord.conf, and plain supervisorctl from the checkout."""

import subprocess
import sys
from typing import Any

import pytest

from kingdom.base.home.places import find_data
from kingdom.court.steward.base import RoleStatus
from kingdom.court.steward.supervisord import _status, render_checkout

CHECKOUT = find_data()


def test_the_checked_in_file_is_what_the_process_table_renders() -> None:
    is_the_same = (CHECKOUT / "supervisord.conf").read_text() == render_checkout()
    assert is_the_same, "run `.venv/bin/python -m kingdom.court.steward.supervisord >supervisord.conf`"


def test_its_folder_is_there_in_a_fresh_clone() -> None:
    listed = subprocess.run(["git", "ls-files", "state/run"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a clone")
    assert listed.stdout.split() == ["state/run/.gitignore"]


def test_it_is_rendered_by_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kingdom.court.steward.supervisord"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == render_checkout()


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({"statename": "RUNNING", "pid": 7}, RoleStatus(pid=7)),
        ({"statename": "STOPPING", "pid": 7}, RoleStatus(pid=7)),
        ({"statename": "EXITED", "exitstatus": 3}, RoleStatus(code=3)),
        ({"statename": "FATAL"}, RoleStatus(code=127)),
        ({"statename": "BACKOFF"}, RoleStatus(code=127)),
        ({"statename": "STOPPED", "start": 1770458400}, RoleStatus(code=0, stopped=True)),
        ({"statename": "STOPPED"}, RoleStatus()),
    ],
)
def test_what_supervisord_tells_of_a_role_is_its_status(told: dict[str, Any], status: RoleStatus) -> None:
    assert _status({"pid": 0, "exitstatus": 0, "start": 0, **told}) == status
