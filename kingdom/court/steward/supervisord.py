"""Run roles as supervisord programs: one supervisord per home, program name = role name."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadFile, LauncherError
from kingdom.base.home import schemas
from kingdom.base.home.places import Places, find_data
from kingdom.base.home.roster import ROLES, RoleRow
from kingdom.base.runtime.processes import stat_fields
from kingdom.court.steward import process_groups
from kingdom.court.steward.base import (
    ANSWER_SECONDS,
    CANNOT_RUN,
    NO_ANSWER,
    STAYS_DOWN,
    TIMEOUTS,
    RoleStatus,
    Timeouts,
    answers,
    connect,
    environment,
    launching,
    remember,
)

START_SECONDS = 15.0
END_SECONDS = TIMEOUTS.stop + ANSWER_SECONDS
"""A supervisord that shuts down gives its roles `stopwaitsecs`, and then needs a moment itself."""
LONGEST_SOCKET_PATH = 107 - len(".4194304")
"""supervisord binds its socket under a longer name first: the path, a dot and its pid."""
SHORT_HOME = "/proc/self/cwd"
"""The home for a supervisord that runs in it: short and harmless, however long and odd its real path."""
PROGRAMS = frozenset({b"supervisord", b"supervisor.supervisord"})
_SHUTDOWN_STATE, _BAD_NAME, _ALREADY_STARTED, _NOT_RUNNING = 6, 10, 60, 70


def render(base: str, role_command: str, wanted: Collection[str], inherits: bool) -> str:
    """Return the configuration of a home at `base`: the roles of the process table, the generals by include."""
    places = Places(Path(base))
    head = f"""\
; The fixed roles, rendered from the process table (kingdom/base/home/roster.py); a test compares the two.
[unix_http_server]
file={places.supervisor_socket}
chmod=0700

[supervisord]
pidfile={places.supervisor_pid}
logfile={places.supervisor_log}
logfile_maxbytes=1MB
logfile_backups=1
loglevel=warn
umask=077
identifier=kingdom

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl=unix://{places.supervisor_socket}
prompt=kingdom

[include]
files={places.supervisor_folder}/*.conf
"""
    home = None if inherits else base
    programs = (render_program(name, role_command, name in wanted, home, base) for name in ROLES)
    return head + "".join(f"\n{program}" for program in programs)


def render_program(name: str, role_command: str, wanted: bool, home: str | None, base: str) -> str:
    """Return one role's part. With startsecs above 0 a quick end would be FATAL, which is final; bin/role backs off.

    The log is named for `supervisorctl tail`: the role alone writes there.
    """
    where = (
        "" if home is None else f'directory={home}\nenvironment=KINGDOM_HOME="{home}",KINGDOM_LAUNCHER="supervisord"\n'
    )
    return f"""\
[program:{name}]
command={role_command} {name}
{where}autostart={"true" if wanted else "false"}
startsecs=0
autorestart=unexpected
exitcodes={",".join(f"{code:d}" for code in STAYS_DOWN)}
stopasgroup=true
killasgroup=true
stopwaitsecs={TIMEOUTS.stop:g}
redirect_stderr=true
stdout_logfile={Places(Path(base)).role_log(name)}
stdout_logfile_maxbytes=0
"""


def render_checkout() -> str:
    """Return the supervisord.conf at the top of the checkout."""
    switched_on = schemas.with_defaults(schemas.load("config/system"), {})["roles"]
    by_default = {name for name, row in ROLES.items() if not row.has_switch or switched_on[name]}
    return render("%(here)s", '/bin/sh "%(here)s/bin/role"', by_default, inherits=False)


class Supervisord:
    name = "supervisord"

    def __init__(self, places: Places, timeouts: Timeouts = TIMEOUTS) -> None:
        self._places = places
        self._timeouts = timeouts
        self._disk = Disk(places.launch_scratch)

    def start_launcher(self, rows: Sequence[RoleRow]) -> None:
        with launching(self._places, self._timeouts.launch):
            remember(self._places, self.name)
            self._wait_for_shutdown()
            self._start_launcher(rows)

    def start(self, row: RoleRow) -> None:
        self._wait_for_shutdown()
        if not self.launcher_runs():
            raise self._error("start", row.name, "it was shut down meanwhile; `kingdom up` starts everything")
        try:
            self._call("startProcess", row.name, False, fine=(_ALREADY_STARTED,))
        except _Unknown:
            self._write_program(row)
            self._take_over_programs()
            self._call("startProcess", row.name, False, fine=(_ALREADY_STARTED,))

    def stop(self, name: str) -> None:
        self._wait_for_shutdown()
        status = self.statuses().get(name)
        while status is not None and (status.pid is not None or status.code not in (None, *CANNOT_RUN, *STAYS_DOWN)):
            self._wait_until_they_listen([status.pid] if status.pid is not None else [])
            # Between a crash and its restart supervisord refuses to stop what does not run: ask again.
            self._call("stopProcess", name, False, fine=(_NOT_RUNNING,))
            if status.pid is not None:
                process_groups.end([status.pid], self._timeouts.stop)
            time.sleep(process_groups.LOOK_SECONDS)
            status = self.statuses().get(name)

    def statuses(self) -> dict[str, RoleStatus]:
        if not self.launcher_runs():
            return {}
        try:
            listed = self._call("getAllProcessInfo", fine=(_SHUTDOWN_STATE,)) or ()
        except LauncherError:
            if self.launcher_runs():
                raise
            return {}  # somebody has ended it meanwhile
        return {about["name"]: _status(about) for about in listed}

    def launcher_runs(self) -> bool:
        return self._server() is not None or self._answers()

    def down(self) -> None:
        self._wait_for_shutdown()
        server = self._server()
        if not self._answers():
            if server is not None:
                os.kill(server, signal.SIGTERM)
                self._wait_for_end(server)
            return
        running = [status.pid for status in self.statuses().values() if status.pid is not None]
        self._wait_until_they_listen(running)
        # Asked for all at once: left to its own shutdown, supervisord would end one after the other.
        self._call("stopAllProcesses", False)
        process_groups.end(running, self._timeouts.stop)
        self._call("shutdown")
        if server is not None:
            self._wait_for_end(server)

    def kill(self) -> None:
        server = self._server()
        if server is not None:
            os.kill(server, signal.SIGKILL)

    def _start_launcher(self, rows: Sequence[RoleRow]) -> None:
        names = {row.name for row in rows}
        make_folder(self._places.supervisor_folder)
        for program in self._places.supervisor_folder.iterdir():
            if program.stem not in names:
                self._disk.remove(program)
        for row in rows:
            self._write_program(row)
        self._write_conf(names)
        ran_before = self._answers()
        if not ran_before:
            self._start_server()
        self._take_over_programs()
        statuses = self.statuses()
        for name in statuses.keys() - names:
            self.stop(name)
        for row in rows:
            # A new supervisord has started its programs itself; one that has ended since is not started twice.
            if ran_before or statuses[row.name] == RoleStatus():
                self.start(row)

    def _write_program(self, row: RoleRow) -> None:
        if row.name in ROLES:
            return
        named = self._named_home()
        program = render_program(row.name, self._role_command(), wanted=True, home=named, base=named or SHORT_HOME)
        make_folder(self._places.supervisor_folder)
        self._disk.rewrite(self._places.supervisor_program(row.name), program.encode())

    def _write_conf(self, names: Collection[str]) -> None:
        if self._is_checkout():
            return
        text = render(SHORT_HOME, self._role_command(), names, inherits=True)
        self._disk.rewrite(self._places.supervisor_conf, text.encode())

    def _conf(self) -> Path:
        return find_data() / "supervisord.conf" if self._is_checkout() else self._places.supervisor_conf

    def _is_checkout(self) -> bool:
        """Return whether the home is the checkout: then the checked-in configuration is used, for supervisorctl."""
        short = len(os.fsencode(self._places.supervisor_socket)) <= LONGEST_SOCKET_PATH
        return short and (find_data() / "pyproject.toml").exists() and self._places.home == find_data()

    def _named_home(self) -> str | None:
        return str(self._places.home).replace("%", "%%") if self._is_checkout() else None

    def _role_command(self) -> str:
        path = str(find_data() / "bin" / "role").replace("%", "%%")
        return f'/bin/sh "{path}"'

    def _wait_for_shutdown(self) -> None:
        """Wait until a supervisord that was told to shut down has ended, or has started over: it takes no role now."""
        if not self._answers() or self._takes_roles():
            return
        give_up = time.monotonic() + self._timeouts.launch
        while (server := self._server()) is not None and not (self._answers() and self._takes_roles()):
            if time.monotonic() > give_up:
                why = (
                    f"pid {server} has been shutting down for {self._timeouts.launch:g} s; end it with kill -9 {server}"
                )
                raise self._error("start", "itself", why)
            time.sleep(process_groups.LOOK_SECONDS)

    def _wait_until_they_listen(self, pids: Collection[int]) -> None:
        """Wait until each process runs its own program.

        A fork of supervisord that does not yet takes TERM as supervisord does, and forgets it when it becomes the role.
        """
        give_up = time.monotonic() + self._timeouts.stop
        while any(_is_supervisord(pid) for pid in pids) and time.monotonic() < give_up:
            time.sleep(process_groups.LOOK_SECONDS)

    def _wait_for_end(self, server: int) -> None:
        if not process_groups.wait_ended(server, END_SECONDS):
            why = f"pid {server} has been shutting down for {END_SECONDS:g} s; end it with kill -9 {server}"
            raise self._error("stop", "itself", why)

    def _takes_roles(self) -> bool:
        try:
            return self._call("getState", fine=(_SHUTDOWN_STATE,)) is not None
        except LauncherError:
            # It closed its socket meanwhile; one that hangs fails at the next call.
            return self._answers()

    def _start_server(self) -> None:
        server = self._server()
        if server is not None:
            # It lives and its socket was deleted. HUP makes it start over, with all its roles.
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGHUP)
            if os.getppid() == server:
                return
            if not self._reopens(server):
                self._spawn()
        else:
            self._spawn()
        give_up = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > give_up:
                raise self._error("start", "itself", f"no answer within {START_SECONDS:g} s")
            time.sleep(process_groups.LOOK_SECONDS)

    def _reopens(self, server: int) -> bool:
        """Wait until it answers or has ended: it may have been about to."""
        give_up = time.monotonic() + START_SECONDS
        while not self._answers() and time.monotonic() < give_up:
            if stat_fields(server) is None:
                return False
            time.sleep(process_groups.LOOK_SECONDS)
        return True

    def _spawn(self) -> None:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "supervisor.supervisord", "-c", str(self._conf())],
                cwd=self._places.home,
                env=environment(self._places, self.name),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=START_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._error("start", "itself", str(error)) from None
        if done.returncode != 0:
            raise self._error(
                "start", "itself", done.stderr.strip().splitlines()[0] if done.stderr else "it said nothing"
            )

    def _take_over_programs(self) -> None:
        ((added, changed, removed),) = self._call("reloadConfig")
        for name in (*changed, *removed):
            self.stop(name)
            self._call("removeProcessGroup", name)
        for name in (*changed, *added):
            self._call("addProcessGroup", name)

    def _answers(self) -> bool:
        return answers(self._places.supervisor_socket, self.name)

    def _server(self) -> int | None:
        """Return supervisord's pid. The pid file may be left over: check that it is ours and no other process."""
        try:
            pid = int(read_bytes(self._places.supervisor_pid, 32))
            ours = _is_supervisord(pid) and os.path.samefile(f"/proc/{pid}/cwd", self._places.home)
        except (OSError, ValueError, BadFile):
            return None
        return pid if ours else None

    def _call(self, method: str, *arguments: str | bool, fine: tuple[int, ...] = ()) -> Any:
        try:
            with xmlrpc.client.ServerProxy(
                "http://kingdom", transport=_Transport(self._places.supervisor_socket)
            ) as proxy:
                return getattr(proxy.supervisor, method)(*arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode in fine:
                return None
            what = str(arguments[0]) if arguments else "its roles"
            kind = _Unknown if fault.faultCode == _BAD_NAME else LauncherError
            raise kind(launcher=self.name, action=method, what=what, why=fault.faultString) from None
        except TimeoutError:
            raise self._error("answer", method, NO_ANSWER) from None
        except (OSError, http.client.HTTPException, xmlrpc.client.Error, ExpatError) as error:
            # Its answer is cut off in the middle when it ends meanwhile.
            raise self._error(method, "its roles", str(error) or type(error).__name__) from None

    def _error(self, action: str, what: str, why: str) -> LauncherError:
        return LauncherError(launcher=self.name, action=action, what=what, why=why)


class _Unknown(LauncherError):
    """{launcher} could not {action} {what}: {why}"""


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = _LauncherConnection(self._path)
        self._connection = host, connection
        return connection


class _LauncherConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("kingdom")
        self._path = path

    def connect(self) -> None:
        self.sock = connect(self._path)


def _is_supervisord(pid: int) -> bool:
    """Return whether a process runs supervisord, or is a copy of it that has not become a role yet."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            return not PROGRAMS.isdisjoint(os.path.basename(part) for part in cmdline.read().split(b"\0"))
    except OSError:
        return False


def _status(about: dict[str, Any]) -> RoleStatus:
    state = about["statename"]
    if about["pid"]:
        return RoleStatus(pid=about["pid"])
    if state == "EXITED":
        return RoleStatus(code=about["exitstatus"])
    if state in ("FATAL", "BACKOFF"):
        return RoleStatus(code=CANNOT_RUN[-1])
    return RoleStatus(code=0, stopped=True) if about["start"] else RoleStatus()


if __name__ == "__main__":
    sys.stdout.write(render_checkout())
