"""Run a real PostgreSQL on loopback, in its own folder and as a user other than root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.certificates import Certified
from tests.distributed.kafka import Missing
from tests.ports import free_port
from tests.waiting import wait_until

START_SECONDS = 60.0


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Yield a database that runs in a folder of its own; where none can run, the tests that ask for it are skipped."""
    with tempfile.TemporaryDirectory(prefix="kd-postgres-", dir="/tmp") as folder:
        try:
            postgres = Postgres(Path(folder))
        except Missing as missing:
            pytest.skip(f"no PostgreSQL: {missing}")
        try:
            postgres.start()
            yield postgres
        finally:
            postgres.stop()


def programs() -> Path:
    """Return the folder with initdb and postgres."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    if named := shutil.which("postgres"):
        return Path(named).parent
    raise Missing("no program postgres here")


class Postgres:
    def __init__(self, folder: Path) -> None:
        self._programs = programs()
        self._folder = folder
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            owner = next((name for name in ("postgres", "nobody") if _is_user(name)), "")
            shutil.chown(folder, owner)
            self._as = {"user": owner, "group": pwd.getpwnam(owner).pw_gid, "extra_groups": []}
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        make = [self._programs / "initdb", "-D", folder / "data", "-U", "hall", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*map(str, make), "--no-sync"], check=True, capture_output=True, cwd=folder, **self._as)

    def take_tls(self, made: Certified, password: str) -> None:
        """Take connections to the name localhost by TLS and with a password alone, from the next start on."""
        data = self._folder / "data"
        for path, name in ((made.certificate, "server.crt"), (made.key, "server.key")):
            shutil.copy(path, data / name)
            (data / name).chmod(0o600)
            if self._as:
                shutil.chown(data / name, self._as["user"])
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(f"CREATE ROLE guest LOGIN SUPERUSER PASSWORD '{password}'")
        (data / "postgresql.auto.conf").write_text("ssl = on\n")
        (data / "pg_hba.conf").write_text("host all hall 127.0.0.1/32 trust\nhostssl all guest all scram-sha-256\n")

    def url_of_guest(self, password: str, host: str = "localhost", **options: object) -> str:
        """Return the address for who comes by TLS."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://guest:{password}@{host}:{self._port}/postgres?{query}"

    @property
    def url(self) -> str:
        return f"postgresql://hall@127.0.0.1:{self._port}/postgres"

    def empty(self) -> None:
        """Leave a database without tables."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")

    def start(self) -> None:
        """Start it and wait until it answers; after a kill it needs a moment."""
        options = ["-k", str(self._folder), "-h", "127.0.0.1", "-p", str(self._port)]
        wait_until(lambda: self._tries(options), START_SECONDS, "PostgreSQL answers")

    def _tries(self, options: list[str]) -> bool:
        if self._process is None or self._process.poll() is not None:
            with open(self._folder / "log", "ab") as log:
                self._process = subprocess.Popen(
                    [str(self._programs / "postgres"), "-D", str(self._folder / "data"), *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    start_new_session=True,
                    **self._as,
                )
        try:
            psycopg.connect(self.url, connect_timeout=1).close()
        except psycopg.Error:
            return False
        return True

    def kill(self) -> None:
        """Kill it with all its children, as the kernel would when memory is short."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
