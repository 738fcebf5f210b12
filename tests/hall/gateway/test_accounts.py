"""Who comes into a hall, with invitations, and how sessions end on every gateway."""

import json
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
import requests

from kingdom.base.records.messages import Order
from kingdom.cli.main import main
from kingdom.hall.database import own_rooms
from kingdom.hall.database.ids import iso
from kingdom.hall.database.opening import open_database
from kingdom.hall.database.own_rooms import THRONE_ROOM
from tests.hall.gateway.halls import PASSWORD, SECONDS, Hall, Person, two_gateways

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]
PROMISED_SECONDS = 1.0
BUSY = 10.0
"""What a busy machine may add: the promise is measured where nothing else runs."""
Kingdom = Callable[..., str]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Hall, str]]:
    """A hall as it is without a configuration of registration."""
    with two_gateways({}, {"roles": {"gateway": True, "worker": True}}) as opened:
        yield opened


@pytest.fixture
def kingdom(
    pair: tuple[Hall, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Call `kingdom` for this hall's home, and return what it prints."""
    monkeypatch.setenv("KINGDOM_HOME", str(pair[0].places.home))

    def call(*words: str) -> str:
        capsys.readouterr()
        assert main(words) == 0, capsys.readouterr()
        return capsys.readouterr().out.strip()

    return call


def code_of(link: str) -> str:
    return link.rpartition("/")[2]


def register(hall: Hall, invite: str | None = None, name: str = "") -> requests.Response:
    given = {"email": f"{name or uuid.uuid4()}@example.org", "password": PASSWORD}
    more = {} if invite is None else {"invite": invite}
    return requests.post(f"{hall.url}/auth/register", json={**given, **more}, timeout=SECONDS)


def refusal(answer: requests.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["message"]


async def test_nobody_comes_in_without_an_invitation_that_is_good_once(
    pair: tuple[Hall, str], kingdom: Kingdom
) -> None:
    hall, _ = pair
    assert refusal(register(hall)) == (403, "An invitation is needed")
    assert refusal(register(hall, "guessed")) == (403, "This invitation is no longer valid")
    link = kingdom("hall", "invite")
    assert link.startswith(f"{hall.url}/#/join/")
    for name in ("Kingdom", "kingdom+x", "ki.ngdom", "k1ngd0m+y", "king-dom"):
        assert refusal(register(hall, code_of(link), name)) == (403, "This name is the kingdom's own")
    assert register(hall, code_of(link)).status_code == 201
    assert refusal(register(hall, code_of(link))) == (403, "This invitation is no longer valid")


async def test_an_invitation_is_not_used_up_by_an_email_that_is_registered_already(
    pair: tuple[Hall, str], kingdom: Kingdom
) -> None:
    hall, _ = pair
    code = code_of(kingdom("hall", "invite", "--uses", "2"))
    given = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD, "invite": code}
    statuses = [requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code for _ in range(3)]
    assert statuses == [201, 409, 409]
    assert register(hall, code).status_code == 201


async def test_the_owner_claims_the_hall_by_the_one_time_link(pair: tuple[Hall, str], kingdom: Kingdom) -> None:
    hall, _ = pair
    link, later = kingdom("hall", "invite", "--owner"), kingdom("hall", "invite", "--owner")
    form = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD, "invite": code_of(link)}
    assert requests.post(f"{hall.url}/auth/register", json=form, timeout=SECONDS).status_code == 201
    owner = Person(hall.url, form["email"])
    assert owner.call("GET", "/auth/me").json() == {
        "id": owner.id,
        "email": form["email"],
        "name": form["email"].partition("@")[0],
        "role": "owner",
    }
    assert f"{form['email']}  owner" in kingdom("hall", "users")
    assert refusal(register(hall, code_of(later))) == (403, "This invitation is no longer valid")


async def test_a_room_of_the_kingdom_is_joined_by_owners_and_by_invitation(
    pair: tuple[Hall, str], kingdom: Kingdom
) -> None:
    hall, _ = pair
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    task = str(uuid.uuid4())
    now = iso(time.time())
    for room, kind in ((THRONE_ROOM, own_rooms.THRONE), (task, own_rooms.TASK)):
        database.run(lambda db, room=room, kind=kind: own_rooms.open_room(db, room, "a room", kind, now))  # type: ignore[misc]
    database.close()

    def person(*options: str) -> Person:
        email = f"{uuid.uuid4()}@example.org"
        given = {"email": email, "password": PASSWORD, "invite": code_of(kingdom("hall", "invite", *options))}
        assert requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code == 201
        return Person(hall.url, email)

    def rooms_of(person: Person) -> set[str]:
        return {room["id"] for room in person.call("GET", "/rooms").json()}

    guest, courtier, owner = person(), person("--room", "throne"), person("--owner")
    assert rooms_of(guest) == set()
    assert rooms_of(courtier) == {THRONE_ROOM, task}
    assert {THRONE_ROOM, task} <= rooms_of(owner)
    assert refusal(guest.call("GET", "/kingdom")) == (403, "Only for owners and people of the throne room")
    said = [person.call("GET", "/kingdom") for person in (courtier, owner)]
    assert [(answer.status_code, answer.json()["state"]) for answer in said] == [(200, "stopped")] * 2
    order = {"action": "cancel", "target": "task-20261118-001"}
    refused = [person.call("POST", "/kingdom/orders", json=order) for person in (guest, courtier)]
    refused += [person.call("POST", "/kingdom/roles/gateway/restart") for person in (guest, courtier)]
    assert [refusal(answer) for answer in refused] == [(403, "Only for owners")] * 4
    assert not hall.places.restart("gateway").exists()
    assert refusal(owner.call("POST", "/kingdom/roles/nobody/restart")) == (404, "There is no such role")
    assert owner.call("POST", "/kingdom/orders", json={**order, "target": "../../config"}).status_code == 400
    given = owner.call("POST", "/kingdom/orders", json=order).json()["orderId"]
    waits = {"orderId": given, **order, "outcome": None, "code": None, "says": None}
    assert owner.call("GET", f"/kingdom/orders/{given}").json() == waits
    assert guest.call("GET", f"/kingdom/orders/{given}").status_code == 403
    [written] = hall.places.folder("orders", "pending").glob("*.json")
    assert Order.from_json(json.loads(written.read_text())).by == owner.email
    assert refusal(guest.call("POST", f"/rooms/{task}/join")) == (403, "This room is joined by invitation")
    other = code_of(kingdom("hall", "invite"))
    assert guest.call("POST", f"/rooms/{task}/join", json={"invite": other}).status_code == 403
    code = code_of(kingdom("hall", "invite", "--room", task))
    assert guest.call("POST", f"/rooms/{task}/join", json={"invite": code}).status_code == 201
    assert rooms_of(guest) == {task}
    assert guest.call("POST", f"/rooms/{task}/leave").status_code == 201
    assert guest.call("POST", f"/rooms/{task}/join", json={"invite": code}).status_code == 403, "it was good once"
    owner.call("POST", f"/rooms/{task}/leave")
    assert owner.call("POST", f"/rooms/{task}/join").status_code == 201


def invited(hall: Hall, kingdom: Kingdom, *options: str) -> Person:
    """Return somebody who has come by an invitation."""
    email = f"{uuid.uuid4()}@example.org"
    given = {"email": email, "password": PASSWORD, "invite": code_of(kingdom("hall", "invite", *options))}
    assert requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    return Person(hall.url, email)


async def test_a_removed_message_is_gone_from_every_screen_and_the_history(
    pair: tuple[Hall, str], kingdom: Kingdom, record_property: Callable[[str, object], None]
) -> None:
    hall, second = pair
    anna, ben, owner = invited(hall, kingdom), invited(hall, kingdom), invited(hall, kingdom, "--owner")
    room = anna.room(ben, owner)
    async with anna.socket(room) as hers, ben.socket(room, url=second) as his:
        for content in ("one", "two", "three"):
            await hers.send(room, content)
        await his.wait("newMessage", lambda told: told["content"] == "three")
        one, two, three = (message["id"] for message in anna.history(room))
        refused = ben.call("POST", f"/rooms/{room}/messages/{one}/remove")
        assert refusal(refused) == (403, "Only its sender and owners may remove a message")
        began = time.monotonic()
        assert anna.call("POST", f"/rooms/{room}/messages/{one}/remove").status_code == 202
        for screen in (hers, his):
            await screen.wait("newMessage", lambda told: told.get("removes") == one)
        took = time.monotonic() - began
        assert owner.call("POST", f"/rooms/{room}/messages/{two}/remove").status_code == 202
        told = await his.wait("newMessage", lambda told: told.get("removes") == two)
    record_property("seconds", {"a removal": round(took, 2)})
    assert took < PROMISED_SECONDS + BUSY
    assert [(line["content"], line.get("removed", False), line.get("removes")) for line in ben.history(room)] == [
        ("", True, None),
        ("", True, None),
        ("three", False, None),
        ("A message was removed.", False, one),
        ("A message was removed.", False, two),
    ]
    assert [line["id"] for line in ben.history(room, after=three)][-1] == told["id"]
    assert anna.call("POST", f"/rooms/{room}/messages/{'0' * 26}/remove").status_code == 404
    assert kingdom("hall", "remove-message", three) == f"{three} in 'a room' is removed."
    assert ben.history(room, after=three)[-1]["removes"] == three
    assert f"removeMessage  {three} in 'a room'" in kingdom("hall", "audit")


async def test_who_is_banned_is_out_at_once_and_comes_in_again_when_allowed(
    pair: tuple[Hall, str], kingdom: Kingdom
) -> None:
    hall, second = pair
    ben = invited(hall, kingdom, "--owner")
    order = {"action": "cancel", "target": "task-1"}
    async with ben.socket() as his, ben.socket(url=second) as others:
        assert kingdom("hall", "ban", ben.email) == f"{ben.email} is banned."
        assert await his.wait("disconnect") == await others.wait("disconnect") == "server disconnect"
    refused = [ben.call("GET", "/rooms"), ben.call("GET", "/kingdom"), ben.call("POST", "/kingdom/orders", json=order)]
    assert [answer.status_code for answer in refused] == [401] * 3
    given = {"email": ben.email, "password": PASSWORD}
    login = requests.post(f"{hall.url}/auth/login", json=given, timeout=SECONDS)
    assert refusal(login) == (403, "This account is banned")
    assert f"{ben.email}  owner, banned  0 " in kingdom("hall", "users")
    assert ["ban", ben.email] in [line.split()[-2:] for line in kingdom("hall", "audit").splitlines()]
    assert kingdom("hall", "unban", ben.id) == f"{ben.email} may sign in again."
    again = Person(hall.url, ben.email)
    assert kingdom("hall", "end-sessions", ben.email) == f"all sessions of {ben.email} have ended."
    assert again.call("GET", "/rooms").status_code in (200, 401), "the signal may be on its way"
    async with again.socket(url=second) as its:
        assert await its.wait("disconnect") == "server disconnect"


async def test_a_removed_member_hears_nothing_more_on_either_gateway(pair: tuple[Hall, str], kingdom: Kingdom) -> None:
    hall, second = pair
    anna, ben = invited(hall, kingdom), invited(hall, kingdom)
    room = anna.room(ben)
    async with anna.socket(room) as hers, ben.socket(room, url=second) as his:
        kingdom("hall", "remove-member", ben.email, room)
        await hers.wait("presence", lambda told: told == {"roomId": room, "userId": ben.id, "on": False})
        await hers.send(room, "among us")
        await hers.wait("newMessage")
        assert (await his.send(room))["error"] == "Not a member of this room"
        assert his.all("newMessage") == []


async def test_an_ended_session_is_disconnected_on_the_other_gateway_and_good_for_nothing(
    pair: tuple[Hall, str], kingdom: Kingdom, record_property: Callable[[str, object], None]
) -> None:
    hall, second = pair
    email = f"{uuid.uuid4()}@example.org"
    given = {"email": email, "password": PASSWORD, "invite": code_of(kingdom("hall", "invite"))}
    assert requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    desk, phone = Person(hall.url, email), Person(hall.url, email)
    listed = desk.call("GET", "/auth/sessions").json()
    assert [session["current"] for session in listed] == [True, False]
    assert listed[0]["agent"].startswith("python-requests/")
    async with phone.socket(url=second) as its, desk.socket(url=second) as others:
        began = time.monotonic()
        assert desk.call("POST", f"/auth/sessions/{listed[1]['id']}/end").status_code == 201
        assert await its.wait("disconnect") == "server disconnect"
        took = time.monotonic() - began
        assert await others.call("heartbeat") == {"success": True}, "the other session goes on"
    record_property("seconds", {"a session's end": round(took, 2)})
    assert took < PROMISED_SECONDS + BUSY
    assert [phone.call("GET", "/rooms", url).status_code for url in ("", second)] == [401, 401]
    assert desk.call("POST", f"/auth/sessions/{listed[1]['id']}/end").status_code == 404
    assert desk.call("POST", "/auth/logout").status_code == 201
    assert desk.call("GET", "/auth/me").status_code == 401


def sign_in(person: Person, password: str) -> int:
    given = {"email": person.email, "password": password}
    return requests.post(f"{person.url}/auth/login", json=given, timeout=SECONDS).status_code


async def test_who_changes_the_password_goes_on_and_every_other_session_ends(
    pair: tuple[Hall, str], kingdom: Kingdom
) -> None:
    hall, elsewhere = pair
    form = {"email": f"{uuid.uuid4()}@example.org", "password": PASSWORD, "invite": code_of(kingdom("hall", "invite"))}
    assert requests.post(f"{hall.url}/auth/register", json=form, timeout=SECONDS).status_code == 201
    here, there = Person(hall.url, form["email"]), Person(elsewhere, form["email"])
    change = {"current": PASSWORD, "new": "another one"}
    wrong = here.call("POST", "/auth/password", json={**change, "current": "not it"})
    assert refusal(wrong) == (401, "Invalid credentials")
    short = here.call("POST", "/auth/password", json={**change, "new": "short"})
    assert (short.status_code, [error["path"] for error in short.json()["errors"]]) == (400, ["new"])
    async with there.socket() as socket:
        changed = here.call("POST", "/auth/password", json=change)
        assert (changed.status_code, changed.content) == (204, b"")
        await socket.wait("disconnect")
    assert there.call("GET", "/auth/me").status_code == 401
    assert [session["current"] for session in here.call("GET", "/auth/sessions").json()] == [True]
    assert [sign_in(here, password) for password in (PASSWORD, "another one")] == [401, 200]


async def test_an_ended_session_stays_ended_when_its_gateway_starts_again(
    pair: tuple[Hall, str], kingdom: Kingdom
) -> None:
    hall, _ = pair
    email = f"{uuid.uuid4()}@example.org"
    given = {"email": email, "password": PASSWORD, "invite": code_of(kingdom("hall", "invite"))}
    assert requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    person = Person(hall.url, email)
    assert person.call("POST", "/auth/logout").status_code == 201
    assert hall.stop("gateway-b") == 0
    second = hall.start("gateway-b")
    assert person.call("GET", "/rooms", second).status_code == 401
    async with person.socket(url=second) as its:
        assert await its.wait("disconnect") == "server disconnect"
