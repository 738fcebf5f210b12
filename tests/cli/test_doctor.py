"""The doctor finds what is wrong and says what to do about it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping

import pytest

from kingdom.base.disk.lock import Lock
from kingdom.base.home.places import Places
from kingdom.base.times import stamp
from tests.cli.conftest import Terminal


def test_a_home_without_running_roles_is_healthy(terminal: Terminal) -> None:
    said = terminal("doctor")
    assert said.code == 0, said.out
    assert "BAD" not in said.out


def test_a_system_that_does_not_tell_its_limit_has_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.cli.doctor._first_word", lambda path: "")
    monkeypatch.setattr("kingdom.cli.doctor._inotify_instances", lambda: 1000)
    assert "ok    inotify: 1000 of 0 instances are in use\n" in terminal("doctor", "--all").out


def test_a_role_that_got_no_instance_is_named(terminal: Terminal) -> None:
    places = terminal.places
    lone_king(places)
    places.heartbeat("king").write_text(json.dumps({"pid": os.getpid(), "state": "idle", "polls": True}))
    said = " ".join(terminal("doctor").out.split())
    assert (
        "warn inotify: king got no instance when it started, and sees new files only when it polls; raise fs." in said
    )
    assert "restart king`" in said
    assert "envoy got no" not in said


def test_a_home_on_a_disk_that_others_serve_is_a_finding(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.cli.doctor._file_system", lambda places: "nfs")
    said = " ".join(terminal("doctor").out.split())
    assert "warn home: it lies on nfs: locks and inotify are unreliable on it; move it to a local disk" in said


def readable_secrets(places: Places) -> None:
    places.env_file.write_text("TOKEN=secret\n")
    places.env_file.chmod(0o644)


def lone_king(places: Places) -> None:
    """The king runs and nobody else."""
    Lock(places.lock("king"), "king").acquire()
    places.heartbeat("king").write_text(json.dumps({"pid": os.getpid(), "state": "idle"}))


def broken_config(places: Places) -> None:
    (places.config / "king.yaml").write_text("concurrency: {max_soldiers: many}\n")


def broken_manifest(places: Places) -> None:
    places.manifest("gen-bad").write_text("name: gen-bad\ndescription: bad\ntimeout_seconds: 5\n")


def lost_package(places: Places) -> None:
    (places.package("gen-herald") / "prompt.md").unlink()


def quarantine(places: Places) -> None:
    places.wanted("king").write_text("quarantined\n")


def missing_queue(places: Places) -> None:
    os.rename(places.queue, places.home / "elsewhere")


def open_folder(places: Places) -> None:
    places.queue.chmod(0o770)


def hall_without_worker(places: Places) -> None:
    (places.config / "system.yaml").write_text("roles: {worker: false}\n")


def open_hall(places: Places) -> None:
    (places.config / "system.yaml").write_text("roles: {gateway: true, worker: true}\n")
    (places.config / "hall.yaml").write_text("registration: open\nhost: 0.0.0.0\n")


def deaf_gateway(places: Places) -> None:
    gateway(places, {"address": "http://127.0.0.1:1"})


def gateway_without_port(places: Places) -> None:
    gateway(places, {"why": "cannot listen on 127.0.0.1 port 7700"})


def gateway_that_cuts(places: Places) -> None:
    said = {"unexpected_ends": 3, "unexpected_end_at": int(time.time()) - 60}
    gateway(places, {"address": "http://127.0.0.1:1", **said})


def gateway(places: Places, said: Mapping[str, object]) -> None:
    """Let the gateway run, and say something of itself."""
    places.own("gateway").mkdir(parents=True)
    Lock(places.lock("gateway"), "gateway").acquire()
    places.gateway_figures("gateway").write_text(json.dumps(said))


def council_without_agents(places: Places) -> None:
    (places.config / "system.yaml").write_text("roles: {council: true}\n")


def council_without_sandbox(places: Places) -> None:
    council_without_agents(places)
    (places.config / "council.yaml").write_text("agents: {leader: {command: [sh], sandbox: off}}\n")


def council_without_instructions(places: Places) -> None:
    council_without_agents(places)
    (places.config / "council.yaml").write_text("agents: {leader: {command: [sh], instructions: agents/x.md}}\n")


def council_without_program(places: Places) -> None:
    council_without_agents(places)
    (places.config / "council.yaml").write_text("agents: {leader: {command: [bin/nobody]}}\n")


def dead_letter(places: Places) -> None:
    council_without_agents(places)
    (places.config / "council.yaml").write_text("agents: {leader: {command: [sh]}}\n")
    places.dead_letters.mkdir()
    (places.dead_letters / "x_dlq_1.mime").write_text("x")


def message_for_nobody(places: Places) -> None:
    places.agent("leader").mkdir(parents=True)
    (places.agent("leader") / "x_1.mime").write_text("x")


def set_back_clock(places: Places) -> None:
    places.own("king").mkdir(exist_ok=True)
    places.heartbeat("king").write_text("{}")
    os.utime(places.heartbeat("king"), (time.time() + 500,) * 2)


def dead_file(places: Places) -> None:
    (places.folder("tasks", "dead") / "task-1.json").write_text("{")


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("Mars/Base", "warn  clock: this machine does not know its time zone Mars/Base, so times are shown in UTC"),
        (":Mars/Base", "time zone Mars/Base"),
        ("America", "time zone America"),
        ("CET-1CEST", "CES?T$"),
        ("<+0330>-3:30", r"\+0330$"),
        ("UTC", "UTC$"),
        ("", "ok    clock: 2"),
    ],
)
def test_a_time_zone_that_the_machine_does_not_know_is_a_finding(
    zone: str, said: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        told = terminal("doctor", "--all").out
    finally:
        monkeypatch.undo()
        time.tzset()
    assert re.search(said, told, re.MULTILINE), told


def test_a_gate_that_holds_new_work_is_a_finding(terminal: Terminal, king_runs: None) -> None:
    assert "ok    gate: new work starts: the machine is green (no vitals yet)" in terminal("doctor", "--all").out
    vitals = {"timestamp": stamp(time.time()), "health": "yellow", "system": {"cpu_percent": 84.2}}
    terminal.places.resources.write_text(json.dumps(vitals))
    said = terminal("doctor").out
    assert "warn  gate: the machine is yellow (cpu 84 %), so only what people say, what has high priority" in said
    assert "events --state pending` lists what waits" in said
    broken_config(terminal.places)
    assert "king.yaml:1: concurrency.max_soldiers" in terminal("doctor").out


def test_a_general_of_another_kingdom_may_have_its_prompts_elsewhere(terminal: Terminal) -> None:
    lost_package(terminal.places)
    templates = terminal.places.extras("templates")
    templates.mkdir(exist_ok=True)
    (templates / "gen-herald-mentioned.md").write_text("Look at {{TASK_ID}}.\n")
    assert "gen-herald has no package" not in terminal("doctor").out


@pytest.mark.parametrize(
    ("break_it", "level", "said"),
    [
        (readable_secrets, "bad", "others may read it; run `chmod 600` on it"),
        (broken_config, "bad", "king.yaml:1: concurrency.max_soldiers: 'many' is not of type 'integer'"),
        (broken_manifest, "bad", "gen-bad.yaml:3: timeout_seconds: 5 is less than the minimum of 30"),
        (lost_package, "bad", "gen-herald has no package in"),
        (quarantine, "bad", "king is quarantined after a crash loop; read logs/king.log, then"),
        (lone_king, "bad", "envoy should run and does not; read logs/envoy.log"),
        (missing_queue, "bad", "queue is missing; run"),
        (open_folder, "warn", "others may write to queue; run `chmod go-w"),
        (hall_without_worker, "warn", "the gateway is switched on and the worker is not; write roles: {worker: true}"),
        (open_hall, "warn", "everybody who reaches 0.0.0.0 can register; write registration: closed"),
        (deaf_gateway, "bad", "gateway does not answer at http://127.0.0.1:1"),
        (gateway_that_cuts, "bad", "gateway ended 3 sockets for no known reason; `grep 'no known reason' logs/gateway"),
        (gateway_without_port, "bad", "gateway cannot listen on 127.0.0.1 port 7700"),
        (council_without_agents, "warn", "council: it is switched on and nobody is to be told; run `"),
        (
            council_without_program,
            "bad",
            "leader: needs set-up: its program bin/nobody is not there; correct agents",
        ),
        (council_without_sandbox, "warn", "leader runs without a sandbox and may write every queue; take"),
        (council_without_instructions, "bad", "leader: its instructions agents/x.md are not there; correct agents"),
        (dead_letter, "warn", "council: 1 message was given up"),
        (message_for_nobody, "warn", "workspace/queue and the council is switched off; write roles: {council: true}"),
        (set_back_clock, "warn", "in the future; the clock was set back"),
        (dead_file, "warn", "1 file in dead/ could not be read"),
    ],
)
def test_a_finding(break_it: Callable[[Places], None], level: str, said: str, terminal: Terminal) -> None:
    break_it(terminal.places)
    told = terminal("doctor")
    assert told.code == (1 if level == "bad" else 0)
    marked = "BAD " if level == "bad" else "warn"
    assert any(row.startswith(marked) and said in row for row in told.out.splitlines()), told.out
    *rows, counts = told.out.splitlines()
    assert all(row[:4] in ("ok  ", "warn", "BAD ") for row in rows), "one line for each finding"
    assert re.fullmatch(r"\d+ faults?, \d+ warnings?, \d+ checks well", counts)
    assert level in {finding["level"] for finding in json.loads(terminal("doctor", "--json").out)["findings"]}


def test_what_is_wrong_stands_first_and_what_is_well_is_folded(terminal: Terminal) -> None:
    open_folder(terminal.places)
    readable_secrets(terminal.places)
    *rows, counts = terminal("doctor").out.splitlines()
    order = [("BAD ", "warn", "ok  ").index(row[:4]) for row in rows]
    assert order == sorted(order)
    assert order.count(2) == 1
    assert "python" in rows[-1]
    findings = json.loads(terminal("doctor", "--json").out)["findings"]
    number = {level: sum(finding["level"] == level for finding in findings) for level in ("bad", "warn", "ok")}
    faults = "1 fault" if number["bad"] == 1 else f"{number['bad']} faults"
    assert counts.startswith(f"{faults}, {number['warn']} warning")
    assert counts.endswith(f"{number['ok']} checks well")
    assert len(terminal("doctor", "--all").out.splitlines()) == len(findings) + 1


def test_what_keeps_the_worker_of_the_hall_is_named(terminal: Terminal) -> None:
    (terminal.places.config / "system.yaml").write_text("roles: {gateway: true, worker: true}\n")
    path = terminal.places.worker_snapshot("worker")
    path.parent.mkdir()
    path.write_text('{"state": "waiting", "why": "the broker is away", "dead": 1, "gaps": 1}')
    said = " ".join(terminal("doctor").out.split())
    assert "hall: worker waits: the broker is away; messages stay in their topic until it is back" in said
    assert "hall: messages were removed from a topic before worker had read them" in said
    assert "hall: worker could not store 1 message; queue/topics/chat.messages.dead.v1 says why" in said
    path.write_text('{"state": "working", "lag": 20001}')
    assert "hall: 20001 messages wait for worker" in " ".join(terminal("doctor").out.split())
