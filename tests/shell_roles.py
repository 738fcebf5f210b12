"""Roles written in sh: the smallest programs that a launcher and a watcher accept as roles.

bin/role is given SHELL_ROLE as its python. What a role does is written in its home by `behave`, and may be
different for each start: the last line is used for all later ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.places import Places
from kingdom.base.home.roster import ROLES, RoleRow
from kingdom.base.runtime.processes import carries, home_mark
from tests.waiting import wait_until

SHELL_ROLE = """\
#!/bin/sh
# called as python is: -P -m kingdom.ROLE [NAME]
role=${4:-${3#kingdom.}}
lives=$KINGDOM_HOME/lives-$role
printf '%s\\n' "$$" >>"$lives"
turn=0 does=beat
while read -r line; do does=$line; turn=$((turn + 1)); [ "$turn" -lt "$(wc -l <"$lives")" ] || break; done \\
    <"$KINGDOM_HOME/does-$role"
heart=$KINGDOM_HOME/state/$role/heartbeat
mkdir -p "${heart%/*}"
seq=0
beat() {
    seq=$((seq + 1))
    printf '{"pid": %d, "role": "%s", "seq": %d, "state": "%s", "worked": %s}\\n' \\
        "$$" "$role" "$seq" "$1" "${2:-false}" >"$heart"
}
stop() { beat stopped; exit 0; }
[ "$role" != chamberlain ] || trap '' HUP
for word in $does; do
    case $word in
        exit=*) exit "${word#exit=}" ;;
        kill) kill -9 "$$" ;;
        worked) beat idle true ;;
        env) env >"$KINGDOM_HOME/env-$role" ;;
        child) sh -c 'trap "" TERM; echo $$ >"$KINGDOM_HOME/child-$0"; while :; do sleep 1; done' "$role" & ;;
        deaf) trap '' TERM ;;
        hang) beat idle; while :; do sleep 1; done ;;
        beat)
            trap stop TERM INT
            [ "$role" = chamberlain ] || trap stop HUP
            while :; do beat idle; sleep 0.1 & wait $!; done ;;
    esac
done
while :; do beat idle; sleep 0.1; done
"""


@dataclass(frozen=True)
class Court:
    """A home whose roles are shell scripts."""

    places: Places

    def behave(self, role: str, *lives: str) -> None:
        (self.places.home / f"does-{role}").write_text("".join(f"{life}\n" for life in lives))

    def lives(self, role: str) -> list[int]:
        """Return the pids of all runs of a role, in order."""
        try:
            return [int(line) for line in (self.places.home / f"lives-{role}").read_text().split()]
        except FileNotFoundError:
            return []

    def beats(self, role: str, life: int = 1) -> bool:
        """Return whether the role's latest run, counted from 1, has written a heartbeat."""
        lives = self.lives(role)
        try:
            return len(lives) >= life and self.beat(role)["pid"] == lives[-1]
        except (FileNotFoundError, ValueError):
            return False

    def wait_for_beats(
        self, *roles: str, life: int = 1, seconds: float = 30.0, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        wait_until(
            lambda: (meanwhile(), all(self.beats(role, life) for role in roles))[1],
            seconds,
            f"{', '.join(roles)} beat in life {life}",
            [self.places.home],
        )

    def beat(self, role: str) -> dict[str, object]:
        record: dict[str, object] = json.loads(self.places.heartbeat(role).read_text())
        return record

    def left(self) -> list[int]:
        """Return runs that have not ended; pids that other programs reuse are left out."""
        ours = frozenset({home_mark(self.places.home)})
        roles = [path.name.removeprefix("lives-") for path in self.places.home.glob("lives-*")]
        return [pid for role in roles for pid in self.lives(role) if runs(pid) and carries(pid, ours)]


def runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def row(role: str) -> RoleRow:
    return RoleRow(role, f"kingdom.{role}") if not role.startswith("gen-") else RoleRow(role, "kingdom.general", role)


def found_court(home: Path, monkeypatch: pytest.MonkeyPatch) -> Court:
    """Make a home; no variable of the developer's shell reaches its roles."""
    for name in [name for name in os.environ if name.startswith("KINGDOM_")]:
        monkeypatch.delenv(name)
    program = home / "python"
    program.write_text(SHELL_ROLE)
    program.chmod(0o755)
    monkeypatch.setenv("KINGDOM_PYTHON", str(program))
    monkeypatch.setenv("KINGDOM_DELAY_FIRST", "10")
    places = Places(home)
    make_folder(places.wanted_folder)
    make_folder(places.logs)
    court = Court(places)
    for role in (*ROLES, "gen-a", "gen-ab"):
        court.behave(role, "beat")
    return court
