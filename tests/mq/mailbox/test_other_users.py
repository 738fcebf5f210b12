"""A mailbox that other users may write to: each uid may do what is listed for it, and nothing besides."""

from __future__ import annotations

import codecs
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from kingdom.base.disk.bulk import Relay
from kingdom.base.errors import BadConfig, KingdomError
from kingdom.mq.client import Client, NotListed
from kingdom.mq.errors import NotAllowed
from kingdom.mq.rights import Rights
from tests.faults.oracle import Figure
from tests.mq.mailbox.boxes import Answer, ByHand, Running
from tests.waiting import SOON, wait_until

SENSOR, WORKER, STRANGER, ADMIN = 61001, 61002, 61003, 61004
CLIENTS: dict[str, Any] = {
    "sensor": {"owner": SENSOR, "may": {"publish": ["telemetry", "alarm-*"], "look": ["telemetry"]}},
    "worker": {"owner": WORKER, "may": {"consume": ["telemetry"]}},
    "other": {"owner": STRANGER + 10, "may": {"consume": ["telemetry"]}},
    "admin": {"owner": ADMIN, "may": {"publish": ["*"], "consume": ["*"], "look": ["*"], "manage": ["*"]}},
}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="ONLY ROOT CAN BECOME OTHER USERS: NOT TESTED")


def as_user(uid: int, act: Callable[[], Any]) -> Any:
    """Return what `act` returns in a process of another user, or raise what it raises as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said = {"returned": act()}
        except BaseException as error:  # noqa: BLE001
            said = {"raised": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = json.loads(pipe.read())
    os.waitpid(child, 0)
    if "raised" in said:
        raise AssertionError(said["raised"])
    return said["returned"]


@pytest.fixture(scope="module")
def opened() -> Iterator[Running]:
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    for folder in (home, home / "queue"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o711)
    running = Running(home, backend="memory", durability="process", ipc={"requestsMode": "1733", "clients": CLIENTS})
    yield running
    running.stop()
    rmtree(home, ignore_errors=True)


@pytest.fixture
def box(home: Path) -> Iterator[ByHand]:
    box = ByHand(home, backend="memory", ipc={"requestsMode": "1733", "clients": CLIENTS})
    yield box
    box.engine.close()


def call(opened: Running, uid: int, client: str, command: str, **payload: Any) -> Any:
    """Return the answer's data, or its refusal."""

    def act() -> Any:
        with Client(opened.root, client, timeout=SOON) as mq:
            try:
                return mq.call(command, payload)
            except KingdomError as error:
                return str(error)

    return as_user(uid, act)


def lay(opened: Running, uid: int, client: str, command: str, payload: Any) -> Path:
    """Put a request there as any program would."""
    name = f"forged-{time.monotonic_ns()}.json"
    request = {"requestId": name[:-5], "clientId": client, "command": command, "payload": payload}

    def rename_in() -> None:
        draft = opened.root / "requests" / f".{name}"
        draft.write_text(json.dumps(request))
        draft.chmod(0o644)
        draft.rename(opened.root / "requests" / name)

    as_user(uid, rename_in)
    return opened.root / "dead" / f"{name}.reason"


def refused(reason: Path) -> str:
    wait_until(reason.exists, SOON, f"{reason} is there")
    found = json.loads(reason.read_text())
    assert found["code"] == "ERR_NOT_ALLOWED"
    return str(found["reason"])


@needs_root
def test_a_user_who_is_not_listed_can_do_nothing(opened: Running, figure: Figure) -> None:
    """As it was done once: to purge, to delete a queue, to acknowledge what somebody else has taken."""
    with opened.client("owner") as mq:
        mq.publish("mine", {"n": 1})
        mq.publish("mine", {"n": 2})
        delivery = mq.take("mine")
        assert delivery is not None
        forged = [
            lay(opened, STRANGER, "x", "purge", {"queue": "mine"}),
            lay(opened, STRANGER, "x", "delete_queue", {"queue": "mine", "yes": True}),
            lay(opened, STRANGER, "owner", "ack", {"messageKey": delivery.message_key, "consumerId": "owner"}),
            lay(opened, STRANGER, "owner", "publish", {"queue": "mine", "message": "{}"}),
            lay(opened, STRANGER, "admin", "purge", {"queue": "mine"}),
            lay(opened, SENSOR, "admin", "purge", {"queue": "mine"}),
        ]
        why = [refused(reason) for reason in forged]
        assert why[0] == f"uid {STRANGER} is no client of this mailbox: list it in ipc.clients of its mq.yaml"
        assert why[4] == f"client 'admin' belongs to uid {ADMIN}, and uid {STRANGER} wrote this"
        metrics = mq.status("mine")["metrics"]
        assert (metrics["ready"], metrics["inflight"]) == (1, 1)
        mq.ack(delivery)
    figure(f"mailbox: {len(why)} forged requests of 2 uids refused, nothing done")


@needs_root
def test_a_listed_client_does_what_is_listed_and_hears_no_to_the_rest(opened: Running) -> None:
    assert "messageId" in call(opened, SENSOR, "sensor", "publish", queue="telemetry", message="{}")
    assert "messageId" in call(opened, SENSOR, "sensor", "publish", queue="alarm-fire", message="{}")
    assert call(opened, SENSOR, "sensor", "status", queue="telemetry")["metrics"]["ready"] >= 1
    assert call(opened, SENSOR, "sensor", "health")["status"] == "ok"
    denied = call(opened, SENSOR, "sensor", "publish", queue="commands", message="{}")
    assert denied == (
        "ERR_NOT_ALLOWED: client 'sensor' may not publish in 'commands': "
        "ipc.clients.sensor.may in mq.yaml does not list it"
    )
    for command, payload in (
        ("consume_next", {"queue": "telemetry"}),
        ("purge", {"queue": "telemetry"}),
        ("delete_queue", {"queue": "telemetry"}),
        ("move", {"queue": "telemetry", "to": "alarm-fire"}),
        ("metrics", {}),
        ("queues", {}),
        ("queues", {"queue": "telemetry"}),  # a field that the call does not have
        ("status", {"queue": "commands"}),
    ):
        assert call(opened, SENSOR, "sensor", command, **payload).startswith("ERR_NOT_ALLOWED"), command
    assert call(opened, ADMIN, "admin", "metrics")["dead"]["files"] >= 0
    assert "queues" in call(opened, ADMIN, "admin", "queues")


@needs_root
def test_the_consumer_is_who_the_uid_says(opened: Running) -> None:
    with opened.client("owner") as mq:
        mq.publish("telemetry", {"n": 3})
        held = mq.take("telemetry")
        assert held is not None
        for payload in (
            {"messageKey": held.message_key, "consumerId": "owner"},
            {"messageKey": held.message_key, "leaseId": held.lease_id},
        ):
            for command in ("ack", "nack", "extend_lease"):
                assert call(opened, WORKER, "worker", command, **payload).startswith("ERR_LEASE_MISMATCH"), command
        batch = call(opened, WORKER, "worker", "ack_batch", acks=[payload])
        assert batch["results"][0]["error"]["code"] == "ERR_LEASE_MISMATCH"
        assert mq.status("telemetry")["metrics"]["inflight"] == 1
        mq.ack(held)
        mq.publish("telemetry", {"n": 4})
    taken = call(opened, WORKER, "worker", "consume_next", queue="telemetry", consumerId="owner")
    assert taken["lease"]["consumerId"] == "worker"
    key = {"messageKey": taken["lease"]["messageKey"]}
    assert call(opened, WORKER, "worker", "ack", **key, consumerId="owner") == {}


@needs_root
def test_a_batch_of_calls_is_checked_call_by_call(opened: Running) -> None:
    calls = [
        {"requestId": str(n), "command": "publish", "payload": {"queue": queue, "message": "{}"}}
        for n, queue in enumerate(("telemetry", "commands"))
    ]
    answers = call(opened, SENSOR, "sensor", "call_batch", calls=calls)["answers"]
    assert [answer["ok"] for answer in answers] == [True, False]
    assert answers[1]["error"]["code"] == "ERR_NOT_ALLOWED"


@needs_root
def test_who_waits_for_a_message_waits_under_its_own_name(opened: Running) -> None:
    with opened.client("owner") as mq:
        mq.publish("telemetry", {})
        mq.delete_queue("telemetry")  # with what other tests have given back, which comes again
        mq.publish("telemetry", {"for": "owner"}, target="owner")
        nothing = call(opened, WORKER, "worker", "consume_next", queue="telemetry", consumerId="owner", waitMs=50)
        assert nothing == {"message": None}
        mq.purge("telemetry")


@needs_root
def test_a_stranger_puts_no_answer_into_the_folder_of_a_client(opened: Running) -> None:
    name = f"broken-{time.monotonic_ns()}.json"

    def act() -> None:
        draft = opened.root / "requests" / f".{name}"
        draft.write_text('{"requestId": "r-of-worker", "clientId": "worker", broken')
        draft.chmod(0o644)
        draft.rename(opened.root / "requests" / name)

    as_user(STRANGER, act)
    wait_until((opened.root / "dead" / f"{name}.reason").exists, SOON, "it is dead")
    assert not (opened.root / "responses" / "worker" / "r-of-worker.json").exists()


@needs_root
def test_the_command_line_is_used_by_a_listed_user(opened: Running) -> None:
    def words(*given: str, client: str = "sensor") -> list[str]:
        return [*given, "--ipc-root", str(opened.root), "--client-id", client]

    def act() -> list[Any]:
        ended = opened.cli(*words("publish", "--queue", "telemetry", "--message", '{"by": "hand"}'))
        denied = opened.cli(*words("purge", "--queue", "telemetry", "--yes"))
        return [*ended, *denied]

    codecs.lookup("ascii")  # a Python in a closed folder can load nothing more as another user
    opened.cli("health")
    code, out, why, denied, _, said = as_user(SENSOR, act)
    assert (code, why) == (0, "")
    assert json.loads(out)["messageKey"].startswith("msg:telemetry:")
    assert denied == 1
    assert "client 'sensor' may not manage in 'telemetry'" in said
    unnamed = as_user(SENSOR, lambda: [*opened.cli("health", "--ipc-root", str(opened.root))])
    assert unnamed[0] == 1
    assert unnamed[2].count("\n") == 1
    assert f"uid {SENSOR} is not its client" in unnamed[2]
    assert "--client-id" in unnamed[2]


@needs_root
def test_a_file_with_another_name_is_nobodys(opened: Running) -> None:
    """A hard link to what another user has written would speak for that user."""
    name = f"linked-{time.monotonic_ns()}"
    request = {"requestId": name, "clientId": "owner", "command": "purge", "payload": {"queue": "mine"}}
    first = opened.root / "requests" / f".{name}"
    first.write_text(json.dumps(request))
    os.link(first, opened.root / "requests" / f"{name}.json")
    assert "other names" in refused(opened.root / "dead" / f"{name}.json.reason")
    first.unlink()


@needs_root
def test_a_stranger_has_no_folder_to_ask_from(opened: Running) -> None:
    def act() -> str:
        try:
            Client(opened.root, "x", timeout=1)
        except NotListed as error:
            return str(error)
        return ""

    assert f"uid {STRANGER} is not its client 'x'" in as_user(STRANGER, act)


def test_without_an_open_mailbox_nothing_is_asked_of_its_owner(home: Path) -> None:
    box = ByHand(home, backend="memory")
    box.data("publish", {"queue": "q", "message": {}}, client="any one")
    assert box.data("consume_next", {"queue": "q", "consumerId": "c"}, client="any one")["lease"]["consumerId"] == "c"
    assert box.data("purge", {"queue": "q"}) == {"queue": "q", "purged": 0}
    box.engine.close()


def test_the_owner_of_an_open_mailbox_does_everything(home: Path) -> None:
    box = ByHand(home, backend="memory", ipc={"requestsMode": "1733"})
    box.data("publish", {"queue": "q", "message": {}}, client="whoever")
    assert box.data("delete_queue", {"queue": "q"})["deleted"] == 1
    box.engine.close()


def test_a_folder_that_was_found_open_is_served_and_named(home: Path) -> None:
    requests = home / "queue" / "mailbox" / "requests"
    requests.mkdir(parents=True)
    requests.chmod(0o777)
    box = ByHand(home, backend="memory")
    box.data("health")
    assert any("other users may write" in said and "ipc.clients" in said for said in box.said)
    box.engine.close()


def test_a_client_that_may_do_something_needs_an_owner(home: Path) -> None:
    with pytest.raises(BadConfig, match=r"ipc\.clients\.sensor\.owner"):
        ByHand(home, backend="memory", ipc={"clients": {"sensor": {"may": {"publish": ["q"]}}}})


SEVERAL = Rights("c", {"publish": ("a", "b-*"), "consume": ("in",), "manage": ("a",), "look": ("*",)})


@pytest.mark.parametrize(
    ("verb", "payload", "allowed"),
    [
        ("publish", {"queue": "a"}, True),
        ("publish", {"queue": "b-1"}, True),
        ("publish", {"queue": "b"}, False),
        ("publish", {}, False),
        ("consume", {"queue": "in"}, True),
        ("consume", {"queue": "a"}, False),
        ("consume", {"messageKey": "msg:other:1"}, True),
        ("manage", {"messageKey": "msg:a:1"}, True),
        ("manage", {"messageKey": "msg:b:1"}, False),
        ("manage", {"messageKey": "anything"}, False),
        ("manage", {"messageKeys": ["msg:a:1", "msg:b:1"]}, False),
        ("manage", {"queue": "a", "to": "b-1"}, False),
        ("manage", {"queue": "a", "messageKey": "msg:b:1"}, False),
        ("look", {}, True),
        ("look", {"queue": "any"}, True),
        (None, {}, True),
    ],
)
def test_rights(verb: Any, payload: Answer, allowed: bool) -> None:
    try:
        SEVERAL.check(verb, payload)
    except NotAllowed:
        assert not allowed
    else:
        assert allowed


@needs_root
def test_a_request_is_readable_to_a_manager_that_is_not_root_whatever_the_umask(opened: Running) -> None:
    def act() -> int:
        os.umask(0o077)
        relay = Relay(str(opened.root / "responses" / "sensor" / ".drafts-of-a-test"), most_spares=0, mode=0o644)
        place = opened.root / "responses" / "sensor" / "of-a-test"
        relay.put(str(place), b"{}")
        mode = stat.S_IMODE(place.stat().st_mode)
        place.unlink()
        return mode

    assert as_user(SENSOR, act) == 0o644
