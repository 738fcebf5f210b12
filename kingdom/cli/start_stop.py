"""`kingdom up`, `down`, `start`, `stop`, `restart`: who runs."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path

import click

from kingdom import picture
from kingdom.cli import beats, home, launchers
from kingdom.cli.init import furnish
from kingdom.disk.atomic import make_folder
from kingdom.disk.lock import holder_pid, is_locked
from kingdom.errors import Exit, NoSuchThing, TookTooLong
from kingdom.home import config, manifests, roster
from kingdom.home.places import Places, find_data
from kingdom.home.roster import ROLES, RoleRow, desired_state
from kingdom.records import notes
from kingdom.runtime.processes import end_carriers, soldier_markers
from kingdom.steward import pick
from kingdom.steward.base import Steward
from kingdom.words import STATES, closest, count, one_line, table

SERVES = {name: row.serves for name, row in ROLES.items()}


@click.command(short_help="Start the kingdom, or whatever of it does not run.")
def up() -> int:
    """Start the kingdom, or whatever of it does not run. Harmless when all runs."""
    places = home.find()
    for line in furnish(places):
        print(line)
    places.check()
    system = config.load(places, "system")
    rows = roster.roles_of(places, system)
    steward = pick(places, str(system["launcher"]))
    called = [row for row in rows if desired_state(places, row.name) == "up"]
    steward.start_launcher(called)
    late = beats.missed(places, steward, called)
    _tell_up(places, steward, rows, late)
    return Exit.FAILED if late or any(desired_state(places, row.name) == "quarantined" for row in rows) else Exit.DONE


@click.command(short_help="Stop every role; soldiers finish their work.")
@click.option("--soldiers", is_flag=True, help="End the soldiers too; their tasks begin again after the next up.")
def down(soldiers: bool) -> None:
    """Stop every role. Soldiers that are out finish their work, unless told otherwise."""
    places = home.find()
    stopped = [name for name in launchers.all_names(places) if is_locked(places.lock(name))]
    launchers.end_all(places)
    if launchers.end_stragglers(places):
        # The chamberlain raises a missing launcher again: it may have done so just before it ended.
        launchers.end_all(places)
    left = [name for name in launchers.all_names(places) if is_locked(places.lock(name))]
    if left:
        raise TookTooLong(
            what=f"end of {', '.join(left)}",
            seconds=launchers.LEAVE_SECONDS,
            hint=f"`{home.command()} status` shows their pids",
        )
    print(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")
    out = _soldiers_out(places)
    if soldiers:
        _end_soldiers(places, out)
    elif out:
        they, them = ("1 soldier finishes its work", "it") if len(out) == 1 else (f"{len(out)} soldiers finish", "them")
        print(f"{they} ({', '.join(camp.name for camp in out)}); `{home.command()} down --soldiers` ends {them}.")


@click.command(short_help="Start one role, also a stopped or quarantined one.")
@click.argument("role")
def start(role: str) -> int:
    """Start one ROLE, also one that was stopped by hand or is quarantined after a crash loop."""
    places = home.find()
    steward, row = launchers.one_running(places), _row(places, role)
    launchers.allow(places, role)
    steward.start(row)
    return _tell_start(places, steward, row)


@click.command(short_help="Stop one role; it stays down until started.")
@click.argument("role")
def stop(role: str) -> None:
    """Stop one ROLE. It stays down until `kingdom start`, whatever else starts."""
    places = home.find()
    _row(places, role)
    make_folder(places.wanted_folder)
    home.disk(places).rewrite(places.wanted(role), b"down\n")
    for steward in launchers.all_running(places):
        steward.stop(role)
    launchers.end_holders([role], places)
    print(f"{role} is stopped; `{home.command()} start {role}` starts it again.")


@click.command()
@click.argument("role")
def restart(role: str) -> int:
    """Stop one ROLE and start it again."""
    places = home.find()
    steward, row = launchers.one_running(places), _row(places, role)
    steward.stop(role)
    launchers.allow(places, role)
    steward.start(row)
    return _tell_start(places, steward, row)


def _row(places: Places, name: str) -> RoleRow:
    rows = {row.name: row for row in home.rows(places)}
    if name in rows:
        return rows[name]
    if name in ROLES:
        hint = f" that is switched on; set roles.{name}: true in {places.config / 'system.yaml'}"
    else:
        hint = closest(name, list(rows)) or f"; here are {', '.join(rows)}"
    raise NoSuchThing(what="role", name=name, hint=hint)


def _soldiers_out(places: Places) -> list[Path]:
    """Their camps, which are called after their tasks."""
    return [camp for camp in places.control_folders() if is_locked(camp / "lock")]


def _end_soldiers(places: Places, camps: list[Path]) -> None:
    disk = home.disk(places)
    notes.forget_stopped_by_down(places, disk)
    for camp in camps:
        notes.note_stopped_by_down(places, disk, camp)
    ended = sum(end_carriers(soldier_markers(places.home, camp.name)) for camp in camps)
    print(f"Ended {count(len(camps), 'soldier')} ({count(ended, 'process', 'processes')}).")


def _tell_up(places: Places, steward: Steward, rows: list[RoleRow], late: list[str]) -> None:
    if steward.name != "tmux" and shutil.which("tmux") is None:
        print("NO TMUX HERE: the roles run under supervisord, so `attach ROLE` cannot show a terminal.")
    views = picture.of(places, home.system(places), time.time()).roles
    does = {each.name: each.description for each in manifests.installed(places)[0]}
    shown = [
        (view.name, STATES.get(view.state, view.state), one_line(does.get(view.name, SERVES.get(view.name, ""))))
        for view in views
    ]
    print(f"The kingdom is up in {places.home}, under {steward.name}." if not late else "Not everybody is up:")
    print(table(shown))
    for name in late:
        print(f"  {name} does not beat: {beats.last_words(places, name)}")
    for row in rows:
        held = desired_state(places, row.name)
        if held != "up":
            step = f"`{home.command()} start {row.name}` starts it, logs/{row.name}.log tells"
            print(f"  {row.name} stays down, {STATES[held]}: {step}")
    print(f"Next: {home.command()} doctor" if late else _what_to_try(places))


def _what_to_try(places: Places) -> str:
    name = home.command()
    here = "" if _found_without_help(places) else f"  export KINGDOM_HOME={shlex.quote(str(places.home))}\n"
    lines = ('say "brief me"', "status --watch", "doctor", "down")
    return "Try:\n" + here + "\n".join(f"  {name} {each}" for each in lines)


def _found_without_help(places: Places) -> bool:
    return places.home in (Path.cwd(), find_data()) or places.home in Path.cwd().parents


def _tell_start(places: Places, steward: Steward, row: RoleRow) -> int:
    if beats.missed(places, steward, [row]):
        print(f"{row.name} does not beat: {beats.last_words(places, row.name)}")
        return Exit.FAILED
    print(f"{row.name} runs, pid {holder_pid(places.lock(row.name))}.")
    return Exit.DONE
