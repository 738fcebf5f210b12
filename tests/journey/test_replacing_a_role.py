"""The page on replacing a role: its example works, and ours stands by beside it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.home.places import find_data
from tests.faults import trees
from tests.journey.kingdoms import Kingdom

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


@pytest.fixture
def foreign(own: Kingdom, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The page's king in place of ours."""
    page = (find_data() / "docs" / "replacing-a-role.md").read_text()
    (example,) = re.findall(r"```sh\n(#!/bin/sh.*?)```", page, re.DOTALL)
    script = tmp_path / "king.sh"
    script.write_text(example)
    own.ok("stop", "king")
    own.places.heartbeat("king").unlink()
    king = subprocess.Popen(["sh", str(script), str(own.home), "gen-herald"])
    own.until_there(own.places.heartbeat("king"))
    yield king
    king.kill()
    king.wait()


@trees.in_campaigns
def test_a_shell_king_is_seen_and_serves_and_ours_stands_by(own: Kingdom, foreign: subprocess.Popen[bytes]) -> None:
    assert "played by another program" in own.run("status").stdout
    event = own.ok("say", "--no-wait", "hello").strip()
    own.until_there(own.places.queue_file("events", "completed", event))
    own.ok("start", "king")
    own.until(lambda: "stands by" in own.places.role_log("king").read_text(), "ours stands by")
    assert "played by another program" in own.run("status").stdout
    foreign.kill()
    foreign.wait()
    own.places.heartbeat("king").unlink()
    own.until(lambda: own.runs("king"), "ours has taken over")
    assert own.run("say", "--timeout", "1", "hello").returncode != 3, "the king is there"
