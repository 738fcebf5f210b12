"""The mailbox killed, or cut off from its disk, at every file call of one step: what was asked is done once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.mq import configuration
from kingdom.mq.client import Client
from tests.faults import oracle, trees
from tests.faults.sweep import BROKEN, FULL, KILL, QUICK_POINTS, Step, none_bad, sweep

BACKENDS = ("filesystem", "sqlite", "hybrid")
ARGV = ("-m", "kingdom.mailbox", "--once")
DURABILITY = "process"

PUBLISHED = ("p1", "p2", "p3")
#: What a client's threads asked for in one file, which is killed in between as well.
TOGETHER = ("t1", "t2")
QUEUE = "sweep"


def put(root: Path, name: str, command: str, **payload: Any) -> None:
    request = {"requestId": name, "clientId": "me", "command": command, "payload": payload}
    path = root / "requests" / f"{name}.json"
    path.write_text(json.dumps(request))


def call(name: str, command: str, **payload: Any) -> dict[str, Any]:
    return {"requestId": name, "command": command, "payload": payload}


def prepare(home: Path, backend: str) -> None:
    """One message out on a lease, two ready; then publishes, alone and together, an ack, a nack and a bad file wait."""
    root = home / "queue" / "mailbox"
    for folder in (home / "config", root / "requests"):
        folder.mkdir(mode=0o700, parents=True)
    config = {"backend": backend, "durability": DURABILITY, "sqlite": {"reserveMiB": 0.01}}
    (home / "config" / "mq.yaml").write_text(json.dumps(config))
    engine = configuration.open_engine(configuration.load(Places(home)), lambda: NOW, lambda *_, **__: None)
    from kingdom.mq import Draft

    for number in range(3):
        engine.publish(QUEUE, Draft(json.dumps({"old": number})))
    (held,) = engine.lease(QUEUE, "me", 1, HOUR)
    (failing,) = engine.lease(QUEUE, "me", 1, HOUR)
    engine.commit()
    engine.close()
    for name in PUBLISHED:
        put(root, name, "publish", queue=QUEUE, message={"label": name})
    put(root, "ack", "ack", messageKey=held.message_key, leaseId=held.lease_id)
    put(root, "nack", "nack", messageKey=failing.message_key, leaseId=failing.lease_id, reason="no")
    calls = [call(name, "publish", queue=QUEUE, message={"label": name}) for name in TOGETHER]
    put(root, "batch", "call_batch", calls=[calls[0], call("c1", "consume_next", queue="empty"), calls[1]])
    put(root, "purge", "purge", queue="nowhere")
    (root / "requests" / "bad.json").write_text("{")
    (root / "processing").mkdir(mode=0o700)


HOUR = 3_600_000
NOW = 4_000_000_000_000
"""In the far future, so that no lease ends during a sweep."""


def check(home: Path, strict: bool = True) -> list[str]:
    """Where the disk failed (not strict), "it may be done or not" is an honest answer too."""
    root = home / "queue" / "mailbox"
    told = {path.stem: json.loads(path.read_text()) for path in root.glob("responses/me/*.json")}
    asked = (*PUBLISHED, "ack", "nack", "purge", "batch")
    wrong = [f"no answer to {name}" for name in asked if name not in told and (strict or name != "purge")]
    undecided = {name for name, answer in told.items() if not answer["ok"] and name not in ("purge", "nack")}
    if strict or any(told[name]["error"]["code"] != "ERR_INTERNAL_ERROR" for name in undecided):
        wrong += [f"{name}: {told[name]}" for name in sorted(undecided)]
    wrong += [f"litter: {path.relative_to(home)}" for path in root.glob("requests/*")]
    wrong += [f"litter: {path.relative_to(home)}" for path in root.glob("processing/*")]
    buried = {path.name for path in root.glob("dead/*") if not path.name.endswith(".reason")}
    if buried != {"bad.json"} or not (root / "dead" / "bad.json.reason").exists():
        wrong.append(f"dead/ holds {sorted(path.name for path in root.glob('dead/*'))}")
    if (batch := told.get("batch")) and batch["ok"]:
        answers = batch["data"]["answers"]
        wrong += oracle.exactly("answers to calls in one file", 3, sum(answer["ok"] for answer in answers))
        told.update((answer["requestId"], answer) for answer in answers)
    return wrong + _messages(home, told)


def _messages(home: Path, told: dict[str, Any]) -> list[str]:
    engine = configuration.open_engine(configuration.load(Places(home)), lambda: NOW, lambda *_, **__: None)
    try:
        labels = {message.message_id: json.loads(message.payload) for message in engine.peek(QUEUE, 100)}
        dead, out = len(engine.dead_letters.listed(QUEUE)), engine.status(QUEUE).inflight
        wrong = [f"{finding.kind}: {finding.what}" for finding in engine.check()]
    finally:
        engine.close()
    for name in (*PUBLISHED, *TOGETHER):
        found = [message for message, payload in labels.items() if payload.get("label") == name]
        answer = told.get(name, {"ok": False})
        if len(found) > 1 or (answer["ok"] and found != [answer["data"]["messageId"]]):
            wrong.append(f"{name} was answered {answer} and lies there as {found}")
    wrong += oracle.exactly("old messages that wait", 1, sum("old" in payload for payload in labels.values()))
    acked, buried = told.get("ack", {}).get("ok"), told.get("nack", {}).get("ok")
    if acked and buried:
        wrong += oracle.exactly("dead letters", 1, dead) + oracle.exactly("messages on a lease", 0, out)
    elif dead + out > 2:
        wrong.append(f"{dead} dead letters and {out} messages on a lease, of two")
    return wrong


def half_visible(home: Path) -> list[str]:
    """Whatever a client may find is whole."""
    wrong = []
    for path in home.glob("queue/mailbox/responses/*/*.json"):
        try:
            json.loads(path.read_text())
        except ValueError as error:
            wrong.append(f"half an answer: {path.relative_to(home)}: {error}")
    return wrong


def step(backend: str, fault: str = KILL) -> Step:
    return Step(
        f"mailbox over {backend}",
        ARGV,
        lambda home: prepare(home, backend),
        lambda home: check(home, strict=fault == KILL),
        at_fault=half_visible,
    )


EVERYTHING = [(backend, fault) for fault in (KILL, FULL, BROKEN) for backend in BACKENDS]


@pytest.mark.parametrize(("backend", "fault"), EVERYTHING if trees.CAMPAIGN else [("sqlite", KILL)])
def test_killed_anywhere_it_does_what_was_asked_once(backend: str, fault: str, figure: oracle.Figure) -> None:
    report = none_bad(sweep(step(backend, fault), fault, budget=QUICK_POINTS), figure)
    assert report.tried >= QUICK_POINTS


def test_the_sweep_asks_as_a_client_would(home: Path) -> None:
    """The request files above are what our own client writes."""
    (home / "requests").mkdir()
    client = Client(home, "me", timeout=0.5)
    seen: list[set[str]] = []
    give_up = client._withdraw
    client._withdraw = lambda name: (  # type: ignore[method-assign]
        seen.append(set(json.loads((home / "requests" / name).read_text()))),  # type: ignore[func-returns-value]
        give_up(name),
    )[1]
    with pytest.raises(Exception, match="not running"):
        client.publish("q", 1)
    client.close()
    assert {"requestId", "clientId", "command", "payload"} <= seen[0]
