"""`kingdom up`, `down`, `start`, `stop`, `restart`: which roles run."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path

import click

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.atomic import make_folder
from kingdom.base.disk.lock import holder_pid, is_locked
from kingdom.base.errors import Exit, NoSuchThing, TookTooLong
from kingdom.base.home import config, manifests, roster
from kingdom.base.home.places import Places, find_data, find_home
from kingdom.base.home.roster import ROLES, RoleRow, desired_state
from kingdom.base.program import home
from kingdom.base.records import notes
from kingdom.base.words import STATES, closest, count, one_line, table
from kingdom.cli import complete, launchers
from kingdom.cli.init import furnish
from kingdom.court import picture
from kingdom.court.soldiers.handle import SoldierHandle
from kingdom.court.steward import pick
from kingdom.court.steward.base import Steward, launching

SERVES = {name: row.serves for name, row in ROLES.items()}


@click.command(short_help="Start the kingdom, or the parts of it that do not run.")
@click.option(
    "--foreground",
    is_flag=True,
    help="Keep running and print the log, as a service; stop every role when asked to end.",
)
@click.pass_context
def up(context: click.Context, foreground: bool) -> int:
    """Start the kingdom, or the parts of it that do not run. Safe to repeat.

    Exit code 1 when a role does not come up or is quarantined, or when the disk is full. With --foreground systemd is
    notified ($NOTIFY_SOCKET) when every role works, and regularly as long as none hangs.
    """
    places = Places(find_home())
    for line in furnish(places):
        print(line)
    places.check()
    system = config.load(places, "system")
    rows = roster.roles_of(places, system)
    steward = pick(places, str(system["launcher"]))
    wanted = [row for row in rows if desired_state(places, row.name) == "up"]
    before = launchers.log_ends(places, [row.name for row in wanted])
    steward.start_launcher(wanted)
    not_up = launchers.not_up(places, steward, wanted)
    not_up = not_up or _renew(places, steward, rows)
    _print_up(places, steward, rows, launchers.reasons(places, not_up, before))
    for wing in wings.rows():
        if wing.greeting and roster.is_switched_on(places, wing.roles[0].name):
            for line in tables.load(wing.greeting)(places, is_logged=foreground):
                print(line)
    if foreground:
        from kingdom.cli.foreground import stay

        code = stay(places)
        context.invoke(down, soldiers=False)
        return code
    is_well = not not_up and not launchers.disk_is_full(places)
    return (
        Exit.DONE if is_well and all(desired_state(places, row.name) != "quarantined" for row in rows) else Exit.FAILED
    )


@click.command(short_help="Stop every role; soldiers finish their work.")
@click.option("--soldiers", is_flag=True, help="Also stop running soldiers; their tasks start again after the next up.")
def down(soldiers: bool) -> None:
    """Stop every role. Running soldiers finish their work, unless --soldiers stops them (this uses up no retry)."""
    places = home.own()
    stopped = [name for name in launchers.all_names(places) if is_locked(places.lock(name))]
    with launching(places):
        launchers.end_all(places)
        if launchers.end_stragglers(places):
            # The chamberlain starts a missing launcher again: it may have done so just before it ended.
            launchers.end_all(places)
        places.last_launcher.unlink(missing_ok=True)
        launchers.forget_starts(places)
    left = [name for name in launchers.all_names(places) if is_locked(places.lock(name))]
    if left:
        raise TookTooLong(
            what=f"end of {', '.join(left)}",
            seconds=launchers.END_SECONDS,
            hint=f"`{home.command()} status` shows their pids",
        )
    print(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")
    running = _running_soldiers(places)
    if soldiers:
        _end_soldiers(places, running)
    elif running:
        goes_on, them = (
            ("1 soldier finishes its work", "it") if len(running) == 1 else (f"{len(running)} soldiers finish", "them")
        )
        tasks = ", ".join(folder.name for folder in running)
        print(f"{goes_on} ({tasks}); `{home.command()} down --soldiers` ends {them}.")


@click.command(short_help="Start one role, also a stopped or quarantined one.")
@click.argument("role", shell_complete=complete.roles)
def start(role: str) -> int:
    """Start one ROLE, also one that was stopped by hand or is quarantined after repeated crashes."""
    places = home.own()
    with launching(places):
        steward, row = launchers.one_running(places), _row(places, role)
        before = launchers.log_ends(places, [role])
        launchers.allow(places, role)
        steward.start(row)
    return _print_started(places, steward, row, before)


@click.command(short_help="Stop one role; it stays stopped until it is started.")
@click.argument("role", shell_complete=complete.roles)
def stop(role: str) -> None:
    """Stop one ROLE. It stays stopped until `kingdom start ROLE`, also through `kingdom up`."""
    places = home.own()
    _row(places, role)
    make_folder(places.wanted_folder)
    with launching(places):
        home.disk(places).rewrite(places.wanted(role), b"down\n")
        for steward in launchers.all_running(places):
            steward.stop(role)
        launchers.end_holders([role], places)
    print(f"{role} is stopped; `{home.command()} start {role}` starts it again.")


@click.command()
@click.argument("role", shell_complete=complete.roles)
def restart(role: str) -> int:
    """Stop one ROLE and start it again."""
    places = home.own()
    with launching(places):
        steward, row = launchers.one_running(places), _row(places, role)
        steward.stop(role)
        before = launchers.log_ends(places, [role])
        launchers.allow(places, role)
        steward.start(row)
    return _print_started(places, steward, row, before)


def _renew(places: Places, steward: Steward, rows: list[RoleRow]) -> list[str]:
    """Restart the roles that run older code than is installed, one by one, until one does not come up; return that."""
    outdated = picture.of(places, home.system(places), time.time()).outdated()
    for row in (row for row in rows if row.name in outdated):
        with launching(places):
            steward.stop(row.name)
            launchers.end_holders([row.name], places)
            steward.start(row)
        if not_up := launchers.not_up(places, steward, [row]):
            return not_up
        print(f"{row.name} ran older code and was restarted.", flush=True)
    return []


def _row(places: Places, name: str) -> RoleRow:
    rows = {row.name: row for row in home.rows(places)}
    if name in rows:
        return rows[name]
    if name in ROLES:
        hint = f" is switched on; set roles.{name}: true in {places.config / 'system.yaml'}"
    else:
        hint = closest(name, list(rows)) or f"; roles here: {', '.join(rows)}"
    raise NoSuchThing(what="role", name=name, hint=hint)


def _running_soldiers(places: Places) -> list[Path]:
    """Return the control folders of the soldiers that run; each is named after its task."""
    return [folder for folder in places.control_folders() if is_locked(folder / "lock")]


def _end_soldiers(places: Places, folders: list[Path]) -> None:
    disk = home.disk(places)
    notes.forget_stopped_by_down(places, disk)
    for folder in folders:
        notes.note_stopped_by_down(places, disk, folder)
    ended = sum(SoldierHandle(places, folder.parents[1].name, folder.name).kill() for folder in folders)
    print(f"Ended {count(len(folders), 'soldier')} ({count(ended, 'process', 'processes')}).")


def _print_up(places: Places, steward: Steward, rows: list[RoleRow], not_up: dict[str, list[str]]) -> None:
    if steward.name != "tmux" and shutil.which("tmux") is None:
        print("NO TMUX HERE: the roles run under supervisord, so `attach ROLE` cannot show a terminal.")
    views = picture.of(places, home.system(places), time.time()).roles
    purposes = SERVES | {general.name: general.description for general in manifests.installed(places)[0]}
    shown = [(view.name, STATES.get(view.state, view.state), one_line(purposes.get(view.name, ""))) for view in views]
    full = launchers.disk_is_full(places)
    is_up = f"The kingdom is up in {places.home}, under {steward.name}{full and ', but '}{full}."
    print("Not everything is up:" if not_up else is_up)
    print(table(shown))
    for reason, names in not_up.items():
        print(f"  {', '.join(names)} {'has' if len(names) == 1 else 'have'} not come up: {reason}")
    for row in rows:
        wanted = desired_state(places, row.name)
        if wanted != "up":
            step = f"`{home.command()} start {row.name}` starts it, logs/{row.name}.log says more"
            print(f"  {row.name} stays down, {STATES[wanted]}: {step}")
    print(f"Next: {home.command()} doctor" if not_up or full else _what_to_try(places))


def _what_to_try(places: Places) -> str:
    name = home.command()
    here = "" if _is_found_by_itself(places) else f"  export KINGDOM_HOME={shlex.quote(str(places.home))}\n"
    commands = ('say "brief me"', "status --watch", "doctor", "down")
    return "Try:\n" + here + "\n".join(f"  {name} {command}" for command in commands)


def _is_found_by_itself(places: Places) -> bool:
    """Return whether a command that is typed as we show it here finds this home without KINGDOM_HOME."""
    return home.is_named() or places.home in (Path.cwd(), find_data()) or places.home in Path.cwd().parents


def _print_started(places: Places, steward: Steward, row: RoleRow, before: launchers.LogEnds) -> int:
    if launchers.not_up(places, steward, [row]):
        print(f"{row.name} has not come up: {launchers.last_error(places, row.name, before)}")
        return Exit.FAILED
    if not is_locked(places.lock(row.name)):
        takes_over = f"takes over {home.hang_seconds(places):g} s after its last heartbeat"
        print(f"{row.name} is played by another program; ours stands by, and {takes_over}.")
        return Exit.DONE
    print(f"{row.name} runs, pid {holder_pid(places.lock(row.name))}.")
    return Exit.DONE
