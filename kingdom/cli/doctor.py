"""`kingdom doctor`: check the set-up for problems, each with what to do about it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import click

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.codec import read_json_or
from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import BadConfig, BadHome, Exit, LauncherError
from kingdom.base.home import config, dotenv, manifests, roster
from kingdom.base.home.places import Places, find_schema
from kingdom.base.program import as_json, home, screen
from kingdom.base.program.screen import Line, Part, Section
from kingdom.base.records import kept
from kingdom.base.runtime.processes import all_pids, stat_fields
from kingdom.base.wing import DoctorFinding
from kingdom.base.words import count, one_line
from kingdom.cli import engine_services, machine, services
from kingdom.court import picture
from kingdom.court.connections.base import Service, ServiceError, ServiceRefused, is_begun, is_set_up, tried
from kingdom.court.rules.gate import Work

OLDEST_PYTHON = (3, 11)
LEAST_FREE_PERCENT, LEAST_FREE_MB = 5, 200
MOST_USED_OF_LIMIT = 0.8
MOST_KEPT = 0.2
KEPT_SECONDS = 3.0
"""How long measuring the kept workspaces may take."""
CLOCK_TOLERANCE_SECONDS = 60.0
FIRST_CREDIBLE_TIME = 1_735_689_600  # 2025-01-01: a clock that says less was never set
RULES_OF_A_ZONE = re.compile(r"([A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?\d")  # as POSIX spells them in TZ: CET-1CEST
UNFIT_FILE_SYSTEMS = {
    "nfs": "locks and inotify are unreliable on it",
    "nfs4": "locks and inotify are unreliable on it",
    "cifs": "locks and inotify are unreliable on it",
    "9p": "inotify does not work on it",
    "tmpfs": "it is empty after a restart of the machine",
}
MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "bad": ("BAD", "bold red")}


Check = Callable[[Places], Iterator[DoctorFinding]]


@click.command(short_help="Check the set-up for problems.")
@click.option("--all", "whole", is_flag=True, help="Also show the checks that passed.")
@click.option("--json", "in_json", is_flag=True, help="Print the findings as one line of JSON.")
def doctor(whole: bool, in_json: bool) -> int:
    """Check the set-up for problems. Exit code 1 when something is BAD."""
    places = home.find()
    findings = [finding for check in CHECKS for finding in check(places)]
    if in_json:
        print(as_json.line("doctor", {"findings": [finding._asdict() for finding in findings]}))
    else:
        screen.show([Section(list(_lines(findings, whole)))])
    return Exit.FAILED if any(finding.level == "bad" for finding in findings) else Exit.DONE


def _lines(findings: list[DoctorFinding], whole: bool) -> Iterator[Line]:
    """Yield what is wrong, the worst first, then what is well, folded, and the counts."""
    by_level = {level: [finding for finding in findings if finding.level == level] for level in ("bad", "warn", "ok")}
    for level in ("bad", "warn", "ok") if whole else ("bad", "warn"):
        yield from map(_line, by_level[level])
    if by_level["ok"] and not whole:
        well = ", ".join(dict.fromkeys(finding.what for finding in by_level["ok"]))
        mark, style = MARKS["ok"]
        yield Line([Part(f"{mark:4}", style), Part(f"  {well}"), Part("; --all says more", "dim")], indent=0, hang=6)
    counts = [count(len(by_level["bad"]), "fault"), count(len(by_level["warn"]), "warning")]
    yield Line([Part(f"{', '.join(counts)}, {count(len(by_level['ok']), 'check')} well", "bold")], indent=0)


def _line(finding: DoctorFinding) -> Line:
    mark, style = MARKS[finding.level]
    step = f"; {finding.next_step}" if finding.next_step else ""
    return Line([Part(f"{mark:4}", style), Part(f"  {finding.what}: {finding.sentence}{step}")], indent=0, hang=6)


def _python(places: Places) -> Iterator[DoctorFinding]:
    running = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < OLDEST_PYTHON
    yield DoctorFinding("bad" if old else "ok", "python", running, "install Python 3.11 or newer" if old else "")
    missing = [name for name in ("click", "croniter", "fastjsonschema", "psutil", "yaml") if find_spec(name) is None]
    if missing:
        yield DoctorFinding("bad", "packages", f"{', '.join(missing)} cannot be imported", "run `make setup`")


def _programs(places: Places) -> Iterator[DoctorFinding]:
    if shutil.which("tmux"):
        yield DoctorFinding("ok", "tmux", "installed")
    else:
        step = "install the package tmux to look at roles with `attach`"
        try:
            yield DoctorFinding(
                "warn", "tmux", f"not installed: roles run under supervisord {version('supervisor')}", step
            )
        except PackageNotFoundError:
            yield DoctorFinding(
                "bad", "tmux", "not installed, and neither is supervisord: nothing can start the roles", step
            )
    there = shutil.which("strace") is not None
    yield DoctorFinding("ok", "strace", "installed" if there else "not installed; only the project's own tests use it")


def _home(places: Places) -> Iterator[DoctorFinding]:
    try:
        places.check()
    except BadHome as error:
        yield DoctorFinding("bad", "home", str(error))
        return
    for folder in (places.queue, places.state):
        if not folder.is_dir():
            yield DoctorFinding("bad", "home", f"{folder} is missing", f"run `{home.command()} up`")
            return
    yield DoctorFinding("ok", "home", str(places.home))
    loose = [path.name for path in (places.queue, places.state, places.logs) if _others_may_write(path)]
    if loose:
        step = f"run `chmod go-w {' '.join(str(places.home / name) for name in loose)}`"
        yield DoctorFinding("warn", "home", f"others may write to {', '.join(loose)}", step)
    file_system = _file_system(places)
    if file_system in UNFIT_FILE_SYSTEMS:
        why = UNFIT_FILE_SYSTEMS[file_system]
        yield DoctorFinding("warn", "home", f"it lies on {file_system}: {why}", "move it to a local disk")


def _others_may_write(path: os.PathLike[str]) -> bool:
    with suppress(FileNotFoundError):
        return bool(os.stat(path).st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return False


def _file_system(places: Places) -> str:
    """Return the type of the mount with the longest matching path."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        rows = [mount.split()[1:3] for mount in mounts]
    real = f"{places.home.resolve()}/"
    fitting = [(len(point), kind) for point, kind in rows if real.startswith(f"{point.rstrip('/')}/")]
    return max(fitting)[1] if fitting else ""


def _configuration(places: Places) -> Iterator[DoctorFinding]:
    names = sorted(
        path.name.removesuffix(".schema.json") for path in find_schema("config/king").parent.glob("*.schema.json")
    )
    bad = 0
    for name in names:
        try:
            config.load(places, name)
        except BadConfig as error:
            bad += 1
            yield DoctorFinding("bad", "config", one_line(error, 300))
    try:
        dotenv.secrets(places)
    except BadConfig as error:
        bad += 1
        yield DoctorFinding("bad", "config", one_line(error, 300))
    for remark in config.remarks(places, *names):
        yield DoctorFinding("warn", "config", one_line(remark, 300))
    if not bad:
        yield DoctorFinding("ok", "config", f"{count(len(names), 'file')} fit their schemas")


def _connections(places: Places) -> Iterator[DoctorFinding]:
    """Try every service that `.env` holds anything for, all at once: each takes at most some seconds."""
    from concurrent.futures import ThreadPoolExecutor

    with suppress(BadConfig):  # _configuration has reported it
        secrets = dotenv.secrets(places)
        known = engine_services.known(places, secrets)
        used = _engines_in_use(places)
        all_of_them = {name: services.load(name) for name in services.SERVICES}
        begun = {
            name: service
            for name, service in all_of_them.items()
            if is_begun(service, known if name in used else secrets)
        }
        if begun:
            with ThreadPoolExecutor(len(begun)) as pool:
                yield from pool.map(lambda name: _connection(places, known, name, begun[name]), begun)


def _engines_in_use(places: Places) -> set[str]:
    """Return the engines of the generals that are installed: what these are signed in with is tried as well."""
    from kingdom.cli import packages

    return {packages.engine_of(places, home.system(places), general) for general in manifests.installed(places)[0]}


def _connection(places: Places, secrets: Mapping[str, str], name: str, service: Service) -> DoctorFinding:
    what, again = f"connection {name}", f"`{home.command()} connect {name}`"
    if not is_set_up(service, secrets):
        missing = [need.name for need in service.needs if not need.is_optional and not need.value(secrets)]
        return DoctorFinding("warn", what, f".env has no {', '.join(missing)}", f"{again} asks for what is missing")
    try:
        level, said, step = "ok", tried(name, service, places, secrets), ""
    except ServiceRefused as error:
        level, said, step = "bad", str(error), f"{again} takes another token"
    except ServiceError as error:
        level, said, step = "warn", str(error), "it is tried again by itself"
    return DoctorFinding(level, what, one_line(dotenv.hide(said, secrets.values()), 300), step)


def _watchers(places: Places) -> Iterator[DoctorFinding]:
    """Yield what the sentinel says of its watchers; nothing where it does not run."""
    if not is_locked(places.lock("sentinel")):
        return
    shown = read_json_or(places.watchers, {})
    active = {
        name: watcher for name, watcher in shown.items() if isinstance(watcher, dict) and watcher.get("state") != "off"
    }
    for name, watcher in active.items():
        state = str(watcher.get("state"))
        if state != "ok":
            level = "bad" if state == "refused" else "warn"
            until = f" until {watcher['until']}" if watcher.get("until") else ""
            yield DoctorFinding(level, f"watcher {name}", one_line(f"{state}{until}: {watcher.get('why')}", 300))
    well = [name for name, watcher in active.items() if watcher.get("state") == "ok"]
    off = [name for name in shown if name not in active]
    yield DoctorFinding("ok", "watchers", f"{', '.join(well) or 'none'} at work; off: {', '.join(off) or 'none'}")


def _generals(places: Places) -> Iterator[DoctorFinding]:
    good, bad = manifests.installed(places)
    for error in bad:
        yield DoctorFinding("bad", "generals", one_line(error, 300))
    for general in good:
        if not _has_prompt(places, general.name):
            step = f"install it again with `{home.command()} generals install PATH`"
            yield DoctorFinding("bad", "generals", f"{general.name} has no package in {places.packages}", step)
    if good:
        yield DoctorFinding("ok", "generals", ", ".join(general.name for general in good))
    elif not bad:
        step = f"`{home.command()} generals install PATH` installs one"
        yield DoctorFinding("warn", "generals", "none is installed: every event will be discarded", step)


def _has_prompt(places: Places, general: str) -> bool:
    """Return whether there is any prompt, in its package or where packages of other kingdoms install theirs."""
    templates = places.extras("templates")
    return any(places.package(general).glob("prompt*.md")) or any(templates.glob(f"{general}[-.]*md"))


def _engines(places: Places) -> Iterator[DoctorFinding]:
    """Yield whether the engine of each installed general could start."""
    from kingdom.cli import packages

    good, _ = manifests.installed(places)
    lacking: dict[str, list[str]] = {}
    try:
        for general in good:
            missing = packages.missing_engine(places, home.system(places), general)
            lacking.setdefault(missing or "", []).append(general.name)
    except BadConfig:
        # _configuration has reported it.
        return
    able = lacking.pop("", [])
    for missing, names in lacking.items():
        why = f"{', '.join(names)}: {one_line(missing, 300)}"
        yield DoctorFinding("warn", "engines", why, "until then such tasks are skipped")
    if able:
        yield DoctorFinding("ok", "engines", f"{', '.join(able)} can work")


def _sandbox(places: Places) -> Iterator[DoctorFinding]:
    missing, hides = machine.missing_of_sandbox()
    if missing:
        why = f"{one_line(missing)}: soldiers have no whole sandbox"
        yield DoctorFinding("warn", "sandbox", why, _without_sandbox(places))
    elif hides:
        why = f"{one_line(hides)}: what hides may outlive its task"
        yield DoctorFinding("warn", "sandbox", why, "let this user have user namespaces or a control group of its own")
    else:
        yield DoctorFinding("ok", "sandbox", "available to soldiers")


def _without_sandbox(places: Places) -> str:
    """Return what becomes of tasks with text from outside where there is no whole sandbox."""
    waits = "tasks with text from outside wait for your consent"
    try:
        trusted = config.load(places, "general")["trusted"]
    except BadConfig:
        return waits  # _configuration has reported it.
    if trusted:
        return f"{waits}, except those of {', '.join(trusted)}, which config/general.yaml trusts"
    return f"{waits}; `trusted` in config/general.yaml names generals that need none"


def _disk(places: Places) -> Iterator[DoctorFinding]:
    about = os.statvfs(places.home)
    free_mb = about.f_bavail * about.f_frsize >> 20
    free = 100 * about.f_bavail / max(1, about.f_blocks)
    inodes = 100 * about.f_favail / about.f_files if about.f_files else 100.0
    short = free < LEAST_FREE_PERCENT or free_mb < LEAST_FREE_MB or inodes < LEAST_FREE_PERCENT
    free_space = f"{free_mb} MB ({free:.0f} %) and {inodes:.0f} % of the inodes are free"
    yield DoctorFinding(
        "bad" if short else "ok", "disk", free_space, f"make room on the disk of {places.home}" if short else ""
    )


def _kept_work(places: Places) -> Iterator[DoctorFinding]:
    """Count what ended tasks have left. It is large when a fifth of the space that could be free is taken by it."""
    folders = [one.folder for one in kept.kept(places)]
    if not folders:
        return
    about = os.statvfs(places.home)
    taken, is_all = kept.size(folders, KEPT_SECONDS)
    is_large = taken > MOST_KEPT * (taken + about.f_bavail * about.f_frsize)
    verb = "keeps" if len(folders) == 1 else "keep"
    said = f"{count(len(folders), 'workspace')} {verb} the work of ended tasks, {'' if is_all else 'more than '}"
    step = f"`{home.command()} tasks work` lists them: take over what you need, and delete their folders"
    yield DoctorFinding("warn" if is_large else "ok", "work", f"{said}{taken >> 20} MB", step if is_large else "")


def _inotify(places: Places) -> Iterator[DoctorFinding]:
    limit = int(_first_word("/proc/sys/fs/inotify/max_user_instances") or 0)
    used = _inotify_instances()
    needed = len(home.rows(places)) + 2
    tight = limit and used + needed > limit * MOST_USED_OF_LIMIT
    usage = f"{used} of {limit} instances are in use"
    step = "raise fs.inotify.max_user_instances with sysctl"
    yield DoctorFinding(
        "warn" if tight else "ok", "inotify", usage, f"a role that gets none polls; {step}" if tight else ""
    )
    for row in home.rows(places):
        if is_locked(places.lock(row.name)) and read_json_or(places.heartbeat(row.name), {}).get("polls"):
            said = f"{row.name} got no instance when it started, and sees new files only when it polls"
            yield DoctorFinding("warn", "inotify", said, f"{step}, then `{home.command()} restart {row.name}`")


def _inotify_instances() -> int:
    found = 0
    for pid in all_pids():
        with suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    found += os.readlink(f"/proc/{pid}/fd/{fd}") == "anon_inode:inotify"
    return found


def _clock(places: Places) -> Iterator[DoctorFinding]:
    now = time.time()
    if now < FIRST_CREDIBLE_TIME:
        today = time.strftime("it says %Y-%m-%d", time.gmtime(now))
        yield DoctorFinding("bad", "clock", today, "set it: ids and schedules depend on it")
        return
    latest = max((path.stat().st_mtime for path in places.state.glob("*/heartbeat")), default=0.0)
    if latest - now > CLOCK_TOLERANCE_SECONDS:
        ahead = f"a heartbeat lies {latest - now:.0f} s in the future"
        yield DoctorFinding("warn", "clock", ahead, "the clock was set back; schedules wait until it has caught up")
        return
    if (zone := _unknown_zone()) is not None:
        step = "install the system's package tzdata, or correct TZ or /etc/localtime"
        yield DoctorFinding(
            "warn", "clock", f"this machine does not know its time zone {zone}, so times are shown in UTC", step
        )
        return
    yield DoctorFinding("ok", "clock", time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)))


def _unknown_zone() -> str | None:
    """Return the zone that TZ or /etc/localtime names if the C library has no data of it, and so takes UTC."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named and os.path.islink("/etc/localtime") and not os.path.exists("/etc/localtime"):
        return os.readlink("/etc/localtime").rpartition("zoneinfo/")[2]
    data = os.path.join(os.environ.get("TZDIR", "/usr/share/zoneinfo"), named)
    known = not named or named == "UTC" or RULES_OF_A_ZONE.match(named) or os.path.isfile(data)
    return None if known else named


def _locks(places: Places) -> Iterator[DoctorFinding]:
    """Check that every living role holds its lock: one that does not has lost it, as somebody replaced the file."""
    lost = 0
    for role in picture.of(places, home.system(places), time.time()).roles:
        pid = _beating_pid(places, role.name)
        if not is_locked(places.lock(role.name)) and pid is not None:
            lost += 1
            step = f"end it with `kill {pid}`, then `{home.command()} up`"
            yield DoctorFinding("bad", "locks", f"{role.name} runs as pid {pid} without its lock", step)
        elif role.state == "silent":
            lost += 1
            step = f"`{home.command()} restart {role.name}`"
            yield DoctorFinding("bad", "locks", f"{role.name} holds its lock and its heartbeat has stopped", step)
    if not lost:
        yield DoctorFinding("ok", "locks", "every running role holds its own")


def _beating_pid(places: Places, name: str) -> int | None:
    """Return the pid in the heartbeat, when such a process lives and is a role of that name."""
    beat = read_json_or(places.heartbeat(name), {})
    pid = beat.get("pid")
    if not isinstance(pid, int) or beat.get("state") == "stopped" or stat_fields(pid) is None:
        return None
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
        return pid if name.encode() in words.read().replace(b"kingdom.", b"").split(b"\0") else None
    return None


def _launcher(places: Places) -> Iterator[DoctorFinding]:
    from kingdom.court.steward import pick

    try:
        steward = pick(places, str(home.system(places)["launcher"]))
        if up := steward.launcher_runs():
            steward.statuses()
    except (LauncherError, BadConfig) as error:
        yield DoctorFinding("bad", "launcher", one_line(error, 300))
        return
    step = "" if up else f"`{home.command()} up` starts the kingdom"
    yield DoctorFinding("ok" if up else "warn", "launcher", f"{steward.name} {'runs' if up else 'does not run'}", step)


def _roles(places: Places) -> Iterator[DoctorFinding]:
    view = picture.of(places, home.system(places), time.time())
    silent = [role for role in view.roles if not role.beats]
    nobody = len(silent) == len(view.roles)
    for role in silent:
        start = f"`{home.command()} start {role.name}`"
        if role.state == "quarantined":
            step = f"read logs/{role.name}.log, then {start}"
            yield DoctorFinding("bad", "roles", f"{role.name} is quarantined after a crash loop", step)
        elif role.state == "down":
            yield DoctorFinding("warn", "roles", f"{role.name} is stopped by hand", start)
        elif role.stopped and not nobody:
            yield DoctorFinding("bad", "roles", f"{role.name} stays down: its launcher was asked to stop it", start)
        elif role.refuses:
            step = f"correct that; where the {roster.watcher(role.name)} runs it comes back by itself, else by {start}"
            yield DoctorFinding("bad", "roles", f"{role.name} does not start: {one_line(role.refuses, 300)}", step)
        elif not nobody:
            what = "holds its lock and writes no heartbeat" if role.state == "silent" else "should run and does not"
            step = f"read logs/{role.name}.log; `{home.command()} restart {role.name}` starts it again"
            yield DoctorFinding("bad", "roles", f"{role.name} {what}", step)
    if nobody:
        missing = [role.name for role in silent if role.state in ("absent", "silent")]
        yield DoctorFinding("warn", "roles", f"none runs{'; missing: ' if missing else ''}{', '.join(missing)}")
    else:
        yield DoctorFinding("ok", "roles", f"{len(view.roles) - len(silent)} of {len(view.roles)} run")
    if names := view.outdated():
        what = f"{', '.join(names)} {'runs' if len(names) == 1 else 'run'} older code than is installed"
        yield DoctorFinding("warn", "roles", what, f"`{home.command()} up` restarts them one by one")


def _products(places: Places) -> Iterator[DoctorFinding]:
    for wing in wings.rows():
        if wing.checks:
            yield from tables.load(wing.checks)(places)


def _gate(places: Places) -> Iterator[DoctorFinding]:
    """Check that the king would start work for an ordinary event; yield nothing where the king does not run."""
    if not is_locked(places.lock("king")):
        return
    from kingdom.court.reasons import gate_now

    try:
        seen = gate_now(places)
    except BadConfig:
        # _configuration has reported it.
        return
    held = seen.holds_because(Work("normal"))
    if held is None:
        yield DoctorFinding("ok", "gate", f"new work starts: the machine is {seen.load.health} ({seen.load.why})")
    else:
        yield DoctorFinding(
            "warn", "gate", one_line(held, 300), f"`{home.command()} events --state pending` lists what waits"
        )


def _dead(places: Places) -> Iterator[DoctorFinding]:
    dead = sum(states["dead"] for states in picture.queues_of(places).values())
    if dead:
        step = f"`{home.command()} queue ls events/dead` (tasks, messages, orders too) says why"
        yield DoctorFinding("warn", "queues", f"{count(dead, 'file')} in dead/ could not be read", step)
    else:
        yield DoctorFinding("ok", "queues", "nothing lies in dead/")


def _first_word(path: str) -> str:
    with suppress(OSError), open(path, encoding="ascii") as file:
        return (file.read().split() or [""])[0]
    return ""


CHECKS: tuple[Check, ...] = (
    _python,
    _programs,
    _home,
    _configuration,
    _connections,
    _watchers,
    _generals,
    _engines,
    _sandbox,
    _disk,
    _kept_work,
    _inotify,
    _clock,
    _launcher,
    _roles,
    _products,
    _locks,
    _gate,
    _dead,
)
