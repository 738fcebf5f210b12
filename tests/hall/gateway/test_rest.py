"""What the REST part answers, to the letter."""

import json
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from kingdom.hall.database import retention
from kingdom.hall.database.opening import open_database
from tests.hall.gateway.halls import PASSWORD, SECONDS, Hall, Person

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
NOWHERE = str(uuid.uuid4())
CURSOR = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture(scope="module")
def anna(hall: Hall) -> Person:
    return hall.person()


def test_registering_and_signing_in(hall: Hall) -> None:
    email = f"{uuid.uuid4()}@Example.org"
    given = {"email": email, "password": PASSWORD, "later": "ignored"}
    first = requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS)
    assert first.status_code == 201
    assert first.json() == {"id": first.json()["id"], "email": email.lower()}
    assert UUID4.match(first.json()["id"])
    again = requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS)
    assert (again.status_code, again.json()["message"]) == (409, "Email already registered")
    signed_in = requests.post(f"{hall.url}/auth/login", json=given, timeout=SECONDS)
    assert signed_in.status_code == 200
    assert list(signed_in.json()) == ["accessToken"]


@pytest.mark.parametrize("known", [True, False], ids=["wrong password", "unknown email"])
def test_who_cannot_sign_in_is_not_told_why(known: bool, hall: Hall, anna: Person) -> None:
    email = anna.email if known else "nobody@example.org"
    answer = requests.post(f"{hall.url}/auth/login", json={"email": email, "password": "wrong one"}, timeout=SECONDS)
    assert answer.status_code == 401
    assert answer.json() == {"message": "Invalid credentials", "error": "Unauthorized", "statusCode": 401}


def test_a_room_and_its_members(hall: Hall, anna: Person) -> None:
    ben = hall.person()
    assert ben.call("GET", "/rooms").json() == []
    made = anna.call("POST", "/rooms", json={"name": "a room"})
    assert made.status_code == 201
    room = made.json()
    assert UUID4.match(room["id"])
    assert MOMENT.match(room["createdAt"])
    rest = {"name": "a room", "lastMessageId": None, "lastMessageAt": None}
    assert room == {"id": room["id"], "createdAt": room["createdAt"], **rest}
    (member,) = anna.call("GET", f"/rooms/{room['id']}/members").json()
    assert (member["roomId"], member["userId"], member["lastReadMessageId"]) == (room["id"], anna.id, None)
    joined = ben.call("POST", f"/rooms/{room['id'].upper()}/join")
    assert joined.status_code == 201
    at = joined.json()["joinedAt"]
    assert joined.json() == {"roomId": room["id"], "userId": ben.id, "joinedAt": at, "lastReadMessageId": None}
    assert ben.call("GET", "/rooms").json() == [{**room, "kind": None, "unread": 0}]
    assert len(ben.call("GET", f"/rooms/{room['id']}/members").json()) == 2
    assert ben.history(room["id"]) == []
    read = ben.call("POST", f"/rooms/{room['id']}/read", json={"lastReadMessageId": CURSOR})
    assert (read.status_code, read.json()) == (201, {"success": True})
    assert ben.call("POST", f"/rooms/{room['id']}/leave").status_code == 201
    assert ben.call("GET", "/rooms").json() == []


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}])
def test_a_post_without_a_body_passes_with_any_content_type(headers: dict[str, str], hall: Hall, anna: Person) -> None:
    room = anna.room()
    answer = requests.post(f"{hall.url}/rooms/{room}/leave", headers={**anna.headers, **headers}, timeout=SECONDS)
    assert answer.status_code == 201


ROOM, OTHERS = "{room}", "{others}"
MARK = {"json": {"lastReadMessageId": CURSOR}}
NOT_A_MEMBER = "Not a member of this room"
REFUSED: list[tuple[str, str, str, dict[str, Any], int, str]] = [
    ("no such room", "POST", f"/rooms/{NOWHERE}/join", {}, 404, "Room not found"),
    ("twice", "POST", f"/rooms/{ROOM}/join", {}, 409, "Already a member of this room"),
    ("members of others", "GET", f"/rooms/{OTHERS}/members", {}, 403, NOT_A_MEMBER),
    ("messages of others", "GET", f"/rooms/{OTHERS}/messages", {}, 403, NOT_A_MEMBER),
    ("messages nowhere", "GET", f"/rooms/{NOWHERE}/messages", {}, 403, NOT_A_MEMBER),
    ("read of others", "POST", f"/rooms/{OTHERS}/read", MARK, 403, NOT_A_MEMBER),
    ("leaving others", "POST", f"/rooms/{OTHERS}/leave", {}, 403, NOT_A_MEMBER),
    ("leaving nowhere", "POST", f"/rooms/{NOWHERE}/leave", {}, 404, "Room not found"),
    ("no uuid", "GET", "/rooms/here/messages", {}, 400, "Validation failed (uuid is expected)"),
    ("no uuid to join", "POST", "/rooms/7/join", {}, 400, "Validation failed (uuid is expected)"),
    ("no such path", "GET", "/nowhere", {}, 404, "Not Found"),
    ("no such method", "DELETE", "/rooms", {}, 405, "Method Not Allowed"),
    ("no upgrade", "GET", "/socket.io/?EIO=4&transport=websocket", {}, 400, "Invalid websocket upgrade"),
    ("too large", "POST", "/rooms", {"data": b" " * 70_000}, 413, "The body is larger than 65536 bytes"),
]


@pytest.mark.parametrize(
    ("_", "method", "path", "given", "status", "message"), REFUSED, ids=[row[0] for row in REFUSED]
)
def test_refusals(
    _: str, method: str, path: str, given: dict[str, Any], status: int, message: str, hall: Hall, anna: Person
) -> None:
    path = path.replace(ROOM, anna.room()) if ROOM in path else path
    path = path.replace(OTHERS, hall.person().room()) if OTHERS in path else path
    answer = anna.call(method, path, **given)
    assert (answer.status_code, answer.json()["message"]) == (status, message)
    assert set(answer.json()) == {"message", "error", "statusCode"}
    assert answer.json()["statusCode"] == status


INVALID: list[tuple[str, str, Any, list[str]]] = [
    ("nothing", "/auth/register", None, ["email", "password"]),
    ("an empty object", "/auth/register", {}, ["email", "password"]),
    ("no email", "/auth/register", {"email": "here", "password": PASSWORD}, ["email"]),
    ("a short password", "/auth/register", {"email": "a@example.org", "password": "short"}, ["password"]),
    ("a long password", "/auth/register", {"email": "a@example.org", "password": "x" * 101}, ["password"]),
    ("a password with U+0000", "/auth/register", {"email": "a@example.org", "password": "x\0xxxxx"}, ["password"]),
    ("no text", "/auth/register", {"email": 1, "password": [PASSWORD]}, ["email", "password"]),
    ("a list", "/auth/login", [], [""]),
    ("no JSON", "/auth/login", b"{", [""]),
    ("a key twice", "/auth/login", b'{"email":"a","email":"b","password":"x"}', [""]),
    ("not UTF-8", "/auth/login", b'{"email":"\xff"}', [""]),
    ("a lone surrogate", "/rooms", b'{"name":"\\ud800"}', [""]),
    ("no name", "/rooms", {}, ["name"]),
    ("an empty name", "/rooms", {"name": ""}, ["name"]),
    ("a long name", "/rooms", {"name": "x" * 101}, ["name"]),
    ("a name with a control character", "/rooms", {"name": "throne\x1b[2J"}, ["name"]),
    ("a name with one of C1", "/rooms", {"name": "throne\x85"}, ["name"]),
    ("a name that turns around", "/rooms", {"name": "\u202emoor enorht"}, ["name"]),
    ("a name of two lines", "/rooms", {"name": "a\u2028b"}, ["name"]),
    ("a name of blanks", "/rooms", {"name": " \u00a0\u200b\ufeff"}, ["name"]),
    ("a name of fillers", "/rooms", {"name": "\u3164\u115f\u2800\uffa0"}, ["name"]),
    ("a name of two directions", "/rooms", {"name": "a\u2066b\u2069"}, ["name"]),
    ("no mark", f"/rooms/{NOWHERE}/read", {}, ["lastReadMessageId"]),
    ("a small mark", f"/rooms/{NOWHERE}/read", {"lastReadMessageId": CURSOR.lower()}, ["lastReadMessageId"]),
]


@pytest.mark.parametrize(("_", "path", "body", "paths"), INVALID, ids=[row[0] for row in INVALID])
def test_a_body_that_does_not_fit_is_told_where(_: str, path: str, body: Any, paths: list[str], anna: Person) -> None:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    answer = anna.call("POST", path, data=raw)
    told = answer.json()
    assert (answer.status_code, told["message"], told["error"]) == (400, "Validation failed", "Bad Request")
    assert [error["path"] for error in told["errors"]] == paths
    assert all(error["message"] for error in told["errors"])


@pytest.mark.anyio
async def test_two_syllables_are_found_inside_words_until_their_message_is_removed(hall: Hall) -> None:
    anna, ben = hall.person(), hall.person()
    room, alone = anna.room(ben), ben.room()
    async with anna.socket(room) as hers, ben.socket(alone) as his:
        await hers.send(room, "내일회의는 세 시")
        await hers.send(room, "그럼 내일 봐요")
        # Of messages of two rooms that are stored in one moment, either may be the newer one.
        await hers.wait("newMessage", lambda told: told["content"] == "그럼 내일 봐요")
        await his.send(alone, "회의는 싫다")
        await his.wait("newMessage")

        def found(person: Person, **query: str) -> list[str]:
            answer = person.call("GET", "/search", params=query)
            assert answer.status_code == 200, answer.text
            assert answer.json()["before"] is None
            return [message["content"] for message in answer.json()["messages"]]

        assert found(anna, q="회의") == ["내일회의는 세 시"]
        assert found(ben, q="회의") == ["회의는 싫다", "내일회의는 세 시"]
        assert found(ben, q="회의", room=room.upper()) == ["내일회의는 세 시"]
        assert found(anna, q="내일") == ["그럼 내일 봐요", "내일회의는 세 시"]
        page = anna.call("GET", "/search", params={"q": "내일", "limit": 1}).json()
        assert page["before"] == page["messages"][0]["id"]
        assert found(anna, q="내일", before=page["before"]) == ["내일회의는 세 시"]
        assert anna.call("GET", "/search", params={"q": "회의", "room": alone}).status_code == 403
        first = anna.history(room)[0]["id"]
        assert anna.call("POST", f"/rooms/{room}/messages/{first}/remove").status_code == 202
        await hers.wait("newMessage", lambda told: told.get("removes") == first)
        assert found(anna, q="회의") == []


@pytest.mark.anyio
async def test_who_resumes_behind_what_was_deleted_is_told_so(hall: Hall) -> None:
    anna = hall.person()
    room = anna.room()
    async with anna.socket(room) as hers:
        for content in ("one", "two", "three"):
            await hers.send(room, content)
        await hers.wait("newMessage", lambda told: told["content"] == "three")
    one, two, three = (message["id"] for message in anna.history(room))
    database = open_database({"database": "sqlite:///state/hall/hall.db"}, {}, hall.places)
    database.run(lambda db: db.do("keep_room", room_id=room, days=1))
    later = time.time() + 2 * 86_400
    assert database.run(lambda db: retention.cut(db, 0, later, 9)) == 2
    database.close()
    cuts = {}
    for after in (one, two, three, None):
        query = {} if after is None else {"after": after}
        answer = anna.call("GET", f"/rooms/{room}/messages", params=query)
        cuts[after] = ([message["content"] for message in answer.json()], answer.headers.get("History-Cut"))
    assert cuts == {one: (["three"], two), two: (["three"], None), three: ([], None), None: (["three"], None)}


UNFIT_SEARCHES = ["", "q=", "q=a&q=b", f"q={'x' * 101}", "q=%00", "q=a&room=here", "q=a&before=x", "q=a&limit=0"]


@pytest.mark.parametrize("query", UNFIT_SEARCHES)
def test_a_search_that_does_not_fit_is_refused(query: str, anna: Person) -> None:
    answer = anna.call("GET", f"/search?{query}")
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")


UNFIT = ["limit=", "limit=0", "limit=101", "limit=1.5", "limit=-1", "limit=x", "limit=%D9%A1", "limit=1&limit=2"]
UNFIT += ["before=x", f"after={CURSOR.lower()}", f"before={CURSOR}&before={CURSOR}", f"after={CURSOR}0", "after="]


@pytest.mark.parametrize("query", UNFIT)
def test_a_query_that_does_not_fit_is_refused(query: str, anna: Person) -> None:
    answer = anna.call("GET", f"/rooms/{NOWHERE}/messages?{query}")
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")
    assert [error["path"] for error in answer.json()["errors"]] == [query.partition("=")[0]]


def test_health_has_exactly_its_parts(hall: Hall) -> None:
    answer = requests.get(f"{hall.url}/health", timeout=SECONDS)
    up = {"status": "up"}
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "info": {"database": up, "topics": up},
        "error": {},
        "details": {"database": up, "topics": up, "worker": up},
    }


def test_members_of_one_name_have_labels_and_everybody_a_role(hall: Hall, anna: Person) -> None:
    name = str(uuid.uuid4())
    emails = [f"{name}@{domain}" for domain in ("example.org", "example.net")]
    for email in emails:
        given = {"email": email, "password": PASSWORD}
        assert requests.post(f"{hall.url}/auth/register", json=given, timeout=SECONDS).status_code == 201
    room = anna.room(*(Person(hall.url, email) for email in emails))
    members = anna.call("GET", f"/rooms/{room}/members").json()
    told = [(member["name"], member.get("label"), member["role"]) for member in members]
    expected = [(anna.email.partition("@")[0], None, "member")]
    assert sorted(told, key=str) == sorted(
        [*expected, (name, "example.org", "member"), (name, "example.net", "member")], key=str
    )


def test_twenty_register_and_sign_in_at_once(hall: Hall) -> None:
    with ThreadPoolExecutor(20) as threads:
        people = list(threads.map(lambda _: hall.person(), range(20)))
    assert len({person.id for person in people}) == 20


@pytest.mark.parametrize(
    "path", ["/", "/health", "/openapi.json", "/rooms", "/nowhere", "/socket.io/?EIO=4&transport=polling"]
)
def test_every_answer_forbids_browsers_to_guess_its_type(path: str, hall: Hall, anna: Person) -> None:
    for headers in (anna.headers, {}, {"Host": "elsewhere.example"}):
        answer = requests.get(hall.url + path, headers=headers, timeout=SECONDS)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
