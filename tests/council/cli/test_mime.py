"""`kingdom mime`, and the codec that every home has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kingdom.base.home.places import Places, find_codec
from tests.cli.conftest import Terminal

CHECKOUT = Path(__file__).resolve().parents[3]
SENT = ("--from", "user", "--to", "leader", "--type", "user_goal")


def test_a_home_has_a_link_to_the_codec_that_follows_kingdom(terminal: Terminal) -> None:
    places = Places(terminal.places.home / "castle")
    terminal.ok("init", str(places.home))
    assert os.readlink(places.codec) == str(find_codec())
    places.codec.unlink()
    places.codec.symlink_to("/nowhere/ignite_mime.py")
    terminal.ok("init", str(places.home))
    assert os.readlink(places.codec) == str(find_codec())


def test_a_home_has_a_queue_for_the_council(terminal: Terminal) -> None:
    places = Places(terminal.places.home / "castle")
    terminal.ok("init", str(places.home))
    (sent,) = terminal.ok("-C", str(places.home), "mime", "send", *SENT, "--body", "goal: x").splitlines()
    assert Path(sent).parent == places.home / "workspace/queue/leader"
    assert os.readlink(places.home / "queue/council") == "../workspace/queue"
    assert (places.home / "queue/council/leader" / Path(sent).name).is_file()


def test_a_codec_of_the_owners_own_stays(terminal: Terminal) -> None:
    path = terminal.places.codec
    path.unlink()
    path.write_text("mine")
    terminal.ok("init", str(terminal.places.home))
    assert path.read_text() == "mine"


def test_the_command_does_what_the_codec_does(terminal: Terminal, home: Path) -> None:
    terminal.ok("mime", "build", *SENT, "--body", "- x", "-o", "a.mime")
    terminal.ok("mime", "update-status", "a.mime", "delivered", "--processed-at", "t")
    assert '"body": "- x"' in terminal.ok("mime", "parse", str(home / "a.mime"))
    assert "usage: " in terminal.ok("mime", "--help")
    refused = terminal("mime", "build", "--form", "x")
    assert (refused.code, refused.err.splitlines()[-1]) == (2, "ignite_mime: there is no option '--form' here")


def test_the_command_judges_bodies_by_their_schemas(terminal: Terminal) -> None:
    terminal.ok("mime", "build", *SENT, "--body", "goal: 3", "-o", "a.mime")
    said = terminal("mime", "validate", "a.mime")
    assert (said.code, said.out) == (1, "a.mime: the body of a user_goal: goal must be string\n")


def test_the_program_of_a_checkout(tmp_path: Path) -> None:
    command = [sys.executable, str(CHECKOUT / "bin" / "ignite_mime.py"), "build", *SENT, "--body", "goal: x"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n\ngoal: x")
