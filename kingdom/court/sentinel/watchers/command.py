"""A program of the owner's: each line of JSON that it prints becomes an event. No port is opened for it.

It closes its output, or ends, when it has said all; then it may read a line `ok` from its input, which comes once its
events are safe. One that keeps a cursor of its own moves it then.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from kingdom.base.disk.codec import parse_json
from kingdom.base.home.places import as_filename
from kingdom.base.records.messages import Event
from kingdom.base.runtime.processes import Markers, end_carriers, home_mark
from kingdom.base.times import stamp
from kingdom.base.words import count, one_line
from kingdom.court.connections.base import ServiceDown
from kingdom.court.sentinel.watchers.base import Watcher, WatcherKit

SOURCE = "command"
MARK = "KINGDOM_WATCHER"
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
LARGEST_LINE = 256 << 10
LARGEST_OUTPUT = 16 << 20
LAST_WORDS = 2000
MOST_ODD_TOLD = 10
FINE = b"ok\n"


@dataclass(frozen=True)
class CommandLook:
    events: Sequence[Event]
    #: Lines that were read for them.
    lines: int
    #: Sentences about lines that make no event, and the number of those lines.
    odd: Sequence[str]
    odd_lines: int
    #: What went wrong after all lines of the run, if anything.
    why: str


class CommandWatcher(Watcher[CommandLook]):
    def __init__(self, kit: WatcherKit) -> None:
        self._kit = kit
        self._argv = [str(part) for part in kit.config["run"]]
        self._child: subprocess.Popen[bytes] | None = None
        self._is_first = True
        self._closed = False
        self._left: list[bytes] = []
        self._told: set[str] = set()
        self._why = ""

    def is_off(self) -> str:
        return "" if self._argv else "polling.command.run in sentinel.yaml names no program"

    def fetch(self) -> CommandLook | None:
        """Let the program run, unless lines of its last run are left: it may not say them again."""
        if not self._left:
            self._run()
        return None if self._closed else self._look()

    def _run(self) -> None:
        if self._is_first:
            self._end_leftovers()
        self._is_first = False
        try:
            child = self._start()
        except OSError as error:
            raise ServiceDown(service=SOURCE, why=f"{self._argv[0]}: {error.strerror}") from None
        if self._closed:  # meanwhile
            self._end()
            return
        output, said, why = self._listen(child)
        whole, _, rest = output.rpartition(b"\n")
        self._left = [line for line in [*whole.split(b"\n"), b"" if why else rest] if line.strip()]
        if not why and child.poll() not in (None, 0):
            why = f"it ended with {child.returncode}: {one_line(said, 200) or 'it said nothing'}"
        if why:
            self._end()
        self._why = why

    def parse(self, found: CommandLook) -> Sequence[Event]:
        """Return the events. What makes none is told, but not again at each run."""
        for sentence in found.odd:
            if sentence not in self._told:
                self._kit.tell(sentence)
        if found.odd_lines > len(found.odd) and not set(found.odd) <= self._told:
            self._kit.tell(f"command: {count(found.odd_lines, 'line')} in all make no event")
        self._told = {*found.odd} or self._told
        return found.events

    def after_emit(self, found: CommandLook, is_whole: bool) -> bool:
        """Tell the program that all its events are safe, and let it end. What went wrong is told after that."""
        if not is_whole:
            self._end()
            return False
        del self._left[: found.lines]
        if self._left:
            return True
        if self._child is not None and not found.why:
            with suppress(OSError, ValueError):
                stdin = self._child.stdin
                assert stdin is not None
                stdin.write(FINE)
                stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(float(self._kit.config["timeout_seconds"]))
        code = None if self._child is None else self._child.poll()
        self._end()
        if found.why or code:
            raise ServiceDown(service=SOURCE, why=found.why or f"it ended with {code} after its events were safe")
        return False

    def _look(self) -> CommandLook:
        """Return as many events as are made at once, of the first lines that are left."""
        events: list[Event] = []
        odd: list[str] = []
        lines = odd_lines = 0
        for line in self._left:
            if len(events) == int(self._kit.config["most_events"]):
                break
            lines += 1
            try:
                events.append(self._event(line))
            except (ValueError, TypeError, KeyError) as error:
                odd_lines += 1
                if len(odd) < MOST_ODD_TOLD:
                    shown = one_line(line[:200].decode("utf-8", "replace"), 100)
                    odd.append(f"command: this line makes no event ({one_line(error, 100)}): {shown}")
        return CommandLook(events, lines, odd, odd_lines, self._why)

    def close(self) -> None:
        self._closed = True
        self._end()

    def _start(self) -> subprocess.Popen[bytes]:
        secrets = {name: self._kit.secrets[name] for name in self._kit.config["env"] if name in self._kit.secrets}
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        home = str(self._kit.places.home)
        self._child = subprocess.Popen(
            self._argv,
            cwd=home,
            env={**inherited, **secrets, "KINGDOM_HOME": home, MARK: SOURCE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return self._child

    def _listen(self, child: subprocess.Popen[bytes]) -> tuple[bytes, str, str]:
        """Return what it has printed until it closed its output, its last words, and why that did not end well."""
        assert child.stdout is not None
        assert child.stderr is not None
        until = time.monotonic() + float(self._kit.config["timeout_seconds"])
        output, said = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ, output)
            selector.register(child.stderr, selectors.EVENT_READ, said)
            while child.stdout in {key.fileobj for key in selector.get_map().values()}:
                left = until - time.monotonic()
                if left <= 0:
                    return bytes(output), "", f"it did not end within {self._kit.config['timeout_seconds']:g} s"
                for key, _ in selector.select(min(left, 1.0)):
                    part = os.read(key.fd, 1 << 16)
                    if not part:
                        selector.unregister(key.fileobj)
                    key.data.extend(part)
                del said[:-LAST_WORDS]
                if len(output) > LARGEST_OUTPUT:
                    return bytes(output), "", f"it printed more than {LARGEST_OUTPUT >> 20} MB"
        # Its end may come a moment after that of its output.
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
        return bytes(output), said.decode("utf-8", "replace"), ""

    def _end(self) -> None:
        """End the program with everything that it has started in its group."""
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _end_leftovers(self) -> None:
        """End a program that a killed sentinel has left running."""
        end_carriers(Markers(frozenset({f"{MARK}={SOURCE}".encode(), home_mark(self._kit.places.home)})))

    def _event(self, line: bytes) -> Event:
        if len(line) > LARGEST_LINE:
            raise ValueError(f"{len(line)} bytes, more than {LARGEST_LINE}")
        said = parse_json(line)
        if not isinstance(said, dict):
            raise ValueError("it is no JSON object")
        payload = said.get("payload", {})
        if not isinstance(payload, dict):
            raise ValueError("its payload is no object")
        name = str(said["id"]) if "id" in said else sha256(_sorted(said)).hexdigest()[:32]
        return Event(
            id=f"evt-{SOURCE}-{as_filename(name)}",
            type=f"{SOURCE}.{said['type']}",
            source=SOURCE,
            repo=said.get("repo") or None,
            payload=payload,
            priority=said.get("priority") or "normal",
            created_at=stamp(self._kit.clock()),
        )


def _sorted(said: dict[str, Any]) -> bytes:
    return json.dumps(said, sort_keys=True).encode()
