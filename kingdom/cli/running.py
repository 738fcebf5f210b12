"""`kingdom up`, `down`, `start`, `stop`, `restart`: who runs."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from kingdom import config, manifests, picture
from kingdom.atomic import make_folder
from kingdom.cli import home
from kingdom.cli.init import furnish
from kingdom.cli.status import STATES
from kingdom.codec import read_json
from kingdom.errors import BadFile, Exit, LauncherTrouble, NoSuchThing, NotRunning, TookTooLong
from kingdom.lock import holder_pid, is_locked
from kingdom.places import Places, find_data
from kingdom.processes import end_carriers, send, soldier_markers, started_at
from kingdom.roster import ROLES, Seat, wanted
from kingdom.schemas import closest
from kingdom.steward import STEWARDS, pick
from kingdom.steward.base import Steward
from kingdom.wake import Waker
from kingdom.words import count, line, table

BEAT_SECONDS = 15.0
LEAVE_SECONDS = 20.0
LOOK_SECONDS = 0.03
SERVES = {name: seat.serves for name, seat in ROLES.items()}
AWAKE = ("idle", "working", "degraded")


@click.command(short_help="Start the kingdom, or whatever of it does not run.")
def up() -> int:
    """Start the kingdom, or whatever of it does not run. Harmless when all runs."""
    places = home.find()
    furnish(places)
    places.check()
    seats = home.seats(places)
    steward = pick(places, str(config.load(places, "system")["launcher"]))
    called = [seat for seat in seats if wanted(places, seat.name) == "up"]
    steward.raise_all(called)
    late = _wait_for_beats(places, steward, called)
    _tell_up(places, steward, seats, late)
    return Exit.FAILED if late or any(wanted(places, seat.name) == "quarantined" for seat in seats) else Exit.DONE


@click.command(short_help="Stop every role; soldiers finish their work.")
@click.option("--soldiers", is_flag=True, help="End the soldiers too; their tasks are tried again after the next up.")
def down(soldiers: bool) -> None:
    """Stop every role. Soldiers that are out finish their work, unless told otherwise."""
    places = home.find()
    stopped = [name for name in _all_names(places) if is_locked(places.lock(name))]
    _end_launchers(places)
    if _end_stragglers(places):
        # The chamberlain raises a missing launcher again: it may have done so just before it ended.
        _end_launchers(places)
    left = [name for name in _all_names(places) if is_locked(places.lock(name))]
    if left:
        raise TookTooLong(
            what=f"end of {', '.join(left)}", seconds=LEAVE_SECONDS, hint="`kingdom status` shows their pids"
        )
    print(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")
    out = _soldiers_out(places)
    if soldiers:
        _end_soldiers(places, out)
    elif out:
        they, them = ("1 soldier finishes its work", "it") if len(out) == 1 else (f"{len(out)} soldiers finish", "them")
        print(f"{they} ({', '.join(out)}); `kingdom down --soldiers` ends {them}.")


@click.command(short_help="Start one role, also a stopped or quarantined one.")
@click.argument("role")
def start(role: str) -> int:
    """Start one ROLE, also one that was stopped by hand or is quarantined after a crash loop."""
    places = home.find()
    steward, seat = _standing(places), _seat(places, role)
    _recall(places, role)
    steward.start(seat)
    return _tell_start(places, steward, seat)


@click.command(short_help="Stop one role; it stays down until started.")
@click.argument("role")
def stop(role: str) -> None:
    """Stop one ROLE. It stays down until `kingdom start`, whatever else starts."""
    places = home.find()
    _seat(places, role)
    make_folder(places.wanted_folder)
    home.disk(places).rewrite(places.wanted(role), b"down\n")
    for steward in _launchers(places):
        steward.stop(role)
    _end([role], places)
    print(f"{role} is stopped; `kingdom start {role}` starts it again.")


@click.command()
@click.argument("role")
def restart(role: str) -> int:
    """Stop one ROLE and start it again."""
    places = home.find()
    steward, seat = _standing(places), _seat(places, role)
    steward.stop(role)
    _recall(places, role)
    steward.start(seat)
    return _tell_start(places, steward, seat)


def begin(places: Places, seat: Seat) -> None:
    """A seat that has just been set up starts at once when the kingdom is up."""
    for steward in _launchers(places):
        steward.start(seat)


def end(places: Places, name: str) -> None:
    """A seat that is no longer there ends, and nothing of its runs is remembered."""
    for steward in _launchers(places):
        steward.stop(name)
    _recall(places, name)


def _seat(places: Places, name: str) -> Seat:
    seats = {seat.name: seat for seat in home.seats(places)}
    if name in seats:
        return seats[name]
    if name in ROLES:
        hint = f" that is switched on; set roles.{name}: true in {places.config / 'system.yaml'}"
    else:
        hint = closest(name, list(seats)) or f"; here are {', '.join(seats)}"
    raise NoSuchThing(what="role", name=name, hint=hint)


def _recall(places: Places, name: str) -> None:
    """Wanted again, and its short lives forgotten: who starts it by hand does not want it to wait."""
    disk = home.disk(places)
    for trace in (places.wanted(name), places.starts(name)):
        if trace.exists():
            disk.remove(trace)


def _all_names(places: Places) -> list[str]:
    """Also roles that are switched off or uninstalled by now, but were started once."""
    started = {path.parent.name for path in places.state.glob("*/lock")}
    return sorted({*ROLES, *(seat.name for seat in home.seats(places)), *started})


def _launchers(places: Places) -> list[Steward]:
    """Those that stand; a change of configuration may have left another one behind."""
    found = []
    for name in STEWARDS:
        try:
            steward = pick(places, name)
        except LauncherTrouble:
            continue
        if steward.standing():
            found.append(steward)
    return found


def _standing(places: Places) -> Steward:
    launchers = _launchers(places)
    if not launchers:
        raise NotRunning(what="the kingdom", hint="start it with `kingdom up`")
    return launchers[0]


def _end_launchers(places: Places) -> None:
    for steward in _launchers(places):
        steward.down()


def _end_stragglers(places: Places) -> bool:
    """Roles that outlived their launcher, or were started without one."""
    names = [name for name in _all_names(places) if is_locked(places.lock(name))]
    _end(names, places)
    return bool(names)


def _end(names: Iterable[str], places: Places) -> None:
    """TERM, then KILL, for whoever holds these roles' locks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        holders = {
            name: pid for name in names if is_locked(places.lock(name)) and (pid := holder_pid(places.lock(name)))
        }
        send([(pid, start) for pid in holders.values() if (start := started_at(pid))], number)
        if _wait(lambda: not any(is_locked(places.lock(name)) for name in holders), LEAVE_SECONDS):  # noqa: B023
            return


def _wait_for_beats(places: Places, steward: Steward, seats: list[Seat]) -> list[str]:
    """Returns who does not beat: in vain waited for, or down for good before that."""

    def settled() -> bool:
        silent = [seat.name for seat in seats if not _beats(places, seat.name)]
        return not silent or all(_has_given_up(places, steward, name) for name in silent)

    _wait(settled, BEAT_SECONDS)
    return [seat.name for seat in seats if not _beats(places, seat.name)]


def _beats(places: Places, name: str) -> bool:
    """It holds its lock, and the beat is this life's."""
    if not is_locked(places.lock(name)):
        return False
    try:
        beat = read_json(places.heartbeat(name))
    except (FileNotFoundError, BadFile):
        return False
    return beat.get("state") in AWAKE and beat.get("pid") == holder_pid(places.lock(name))


def _has_given_up(places: Places, steward: Steward, name: str) -> bool:
    if wanted(places, name) != "up":
        return True
    word = steward.alive().get(name)
    return word is not None and word.code in (Exit.REFUSED, Exit.LOCKED)


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    give_up = time.monotonic() + seconds
    waker = Waker((), "poll")
    try:
        while not (finished := done()) and time.monotonic() < give_up:
            waker.wait(LOOK_SECONDS)
        return finished
    finally:
        waker.close()


def _soldiers_out(places: Places) -> list[str]:
    return [camp.name for camp in places.camps() if is_locked(camp / "lock")]


def _end_soldiers(places: Places, tasks: list[str]) -> None:
    ended = sum(end_carriers(soldier_markers(places.home, task)) for task in tasks)
    print(f"Ended {count(len(tasks), 'soldier')} ({count(ended, 'process', 'processes')}).")


def _tell_up(places: Places, steward: Steward, seats: list[Seat], late: list[str]) -> None:
    if steward.name != "tmux" and shutil.which("tmux") is None:
        print("NO TMUX HERE: the roles run under supervisord, so `kingdom attach ROLE` cannot show a terminal.")
    views = picture.take(places, [seat.name for seat in seats], time.time()).roles
    does = {each.name: each.description for each in manifests.installed(places)[0]}
    rows = [
        (view.name, STATES.get(view.state, view.state), line(does.get(view.name, SERVES.get(view.name, ""))))
        for view in views
    ]
    print(f"The kingdom is up in {places.home}, under {steward.name}." if not late else "Not everybody is up:")
    print(table(rows))
    for name in late:
        print(f"  {name} does not beat: {last_words(places, name)}")
    for seat in seats:
        held = wanted(places, seat.name)
        if held != "up":
            why = "stopped by hand" if held == "down" else "quarantined after a crash loop"
            print(f"  {seat.name} stays down, {why}: `kingdom start {seat.name}` starts it, logs/{seat.name}.log tells")
    print(f"Next: {home.command()} doctor" if late else _what_to_try(places))


def _what_to_try(places: Places) -> str:
    name = home.command()
    here = "" if _found_without_help(places) else f"  export KINGDOM_HOME={places.home}\n"
    lines = ('say "brief me"', "status --watch", "doctor", "down")
    return "Try:\n" + here + "\n".join(f"  {name} {each}" for each in lines)


def _found_without_help(places: Places) -> bool:
    return places.home in (Path.cwd(), find_data()) or places.home in Path.cwd().parents


def last_words(places: Places, name: str) -> str:
    """The newest complaint in the role's log, for somebody who asks why it does not run."""
    for path in (places.role_log(name), places.last_words(name)):
        try:
            lines = path.read_text("utf-8", "replace").splitlines()[-50:]
        except FileNotFoundError:
            continue
        troubles = [each for each in lines if " error " in each or path == places.last_words(name)]
        if troubles:
            return line(troubles[-1], 300)
    module = name if name in ROLES else f"general {name}"
    return f"nothing in {places.role_log(name)}; `python -m kingdom.{module}` tells"


def _tell_start(places: Places, steward: Steward, seat: Seat) -> int:
    if _wait_for_beats(places, steward, [seat]):
        print(f"{seat.name} does not beat: {last_words(places, seat.name)}")
        return Exit.FAILED
    print(f"{seat.name} runs, pid {holder_pid(places.lock(seat.name))}.")
    return Exit.DONE
