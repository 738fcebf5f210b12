"""What each agent is told when a model plays it: all its types, and calls that work as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kingdom.base.home.places import Places, find_codec, find_data
from kingdom.council import mime, players
from kingdom.council.bodies import faults_of_body

FOLDER = Places(find_data()).package(players.GENERAL) / "agents"
CALL = re.compile(r"```sh\n(.*?)\n```\n\n```yaml\n(.*?)```", re.DOTALL)


def text_of(role: str) -> str:
    return (FOLDER / f"{role}.md").read_text()


def test_there_is_a_file_for_each_role_of_the_team() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted([*players.ROLES, "everybody"])


@pytest.mark.parametrize("role", players.ROLES)
def test_it_knows_every_type_that_comes_to_it_and_that_it_sends(role: str) -> None:
    name = "ignitian_{n}" if role == "ignitian" else role
    known = [kind for kind, (sender, to, _) in mime.TYPES.items() if name in to.split() or name in sender.split()]
    text = text_of(role)
    assert [kind for kind in known if kind not in text] == []


@pytest.mark.parametrize("role", players.ROLES)
def test_its_calls_work_as_they_stand(role: str, tmp_path: Path) -> None:
    calls = CALL.findall(text_of(role))
    assert calls
    asked = tmp_path / "user_goal_1770000000000001.mime"
    asked.write_text(mime.build_message(from_agent="user", to_agents=role, msg_type="user_goal", body="goal: x"))
    for call, body in calls:
        (tmp_path / "body.yaml").write_text(body)
        line = call.replace("\\\n", " ").replace("PATH", str(asked)).replace("$KINGDOM_AGENT", "ignitian_2")
        words = shlex.split(line.replace("$KINGDOM_HOME/scripts/lib/ignite_mime.py", str(find_codec())))
        done = subprocess.run(
            [sys.executable, *words[1:], "--queue", str(tmp_path / "queue")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, ""), call
        kind = words[words.index("--type") + 1]
        assert faults_of_body(kind, body) == []
        for path in done.stdout.split():
            assert mime.warnings(Path(path).read_bytes()) == []
