"""What a service's answer means to whoever asked: what it says, a pause, a refusal, or that it is down."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.court.connections.base import ServiceDown, ServiceLimited, ServiceRefused
from kingdom.court.connections.web import LARGEST, PATIENT, QUICK, Deadlines, Web
from kingdom.demo.standins.faults import cuts, drops
from kingdom.demo.standins.server import Answer, HttpRequest, StandIn, answer_json

NOW = "Wed, 18 Nov 2026 12:00:00 GMT"
IN_A_MINUTE, AGO = "Wed, 18 Nov 2026 12:01:00 GMT", "Wed, 18 Nov 2026 11:00:00 GMT"
AT = 1795003200.0
TOKEN = "secret-of-ours"


class Service(StandIn):
    reply: Callable[[HttpRequest], Answer | None] = staticmethod(lambda _: answer_json({}))

    def answer(self, request: HttpRequest) -> Answer:
        return self.reply(request) or answer_json({})


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture
def web(service: Service) -> Iterator[Web]:
    web = Web("it", service.address, {"Authorization": TOKEN})
    yield web
    web.close()


def test_an_answer_is_its_json_its_headers_and_the_time_by_the_services_clock(service: Service, web: Web) -> None:
    service.reply = lambda _: answer_json([1], headers={"date": NOW, "X-Odd": "y"})
    answer = web.get("a/b", {"q": "ä"}, accept="z")
    (asked,) = service.requests
    assert (answer.status, answer.body, answer.headers["x-odd"], answer.at) == (200, [1], "y", AT)
    assert (asked.path, asked.query, asked.headers["accept"]) == ("/a/b", {"q": ["ä"]}, "z")
    assert asked.headers["authorization"] == TOKEN


def test_an_answer_may_be_packed(service: Service, web: Web) -> None:
    service.reply = lambda _: Answer(200, gzip.compress(b'{"a": 1}'), {"content-encoding": "gzip"})
    assert web.get("").body == {"a": 1}


@pytest.mark.parametrize(("status", "body"), [(204, b""), (304, b""), (200, b" \n")])
def test_what_has_no_body_says_nothing(service: Service, web: Web, status: int, body: bytes) -> None:
    service.reply = lambda _: Answer(status, body)
    assert web.get("").body is None


@pytest.mark.parametrize(
    ("link", "page"),
    [
        ('<https://a/2>; rel="next", <https://a/9>; rel="last"', "https://a/2"),
        ('<https://a/1>; rel="prev"', ""),
        ("", ""),
    ],
)
def test_the_next_page_is_the_one_that_a_link_calls_so(service: Service, web: Web, link: str, page: str) -> None:
    service.reply = lambda _: answer_json([], headers={"link": link})
    assert web.get("").next_page() == page


RESET = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{AT + 90:.0f}"}


@pytest.mark.parametrize(
    ("status", "headers", "seconds", "is_named"),
    [
        (429, {"retry-after": "7"}, 7.0, True),
        (429, {"retry-after": "60"}, 60.0, True),
        (503, {"retry-after": IN_A_MINUTE}, 60.0, True),
        (403, {"retry-after": AGO}, 1.0, True),
        (403, {"retry-after": "999999"}, 86400.0, True),
        (403, RESET, 90.0, True),
        (429, {"retry-after": "soon"}, 60.0, False),
        (429, {**RESET, "x-ratelimit-remaining": "1"}, 60.0, False),
        (429, {}, 60.0, False),
    ],
)
def test_a_service_that_asks_for_a_pause_gets_it(
    service: Service, web: Web, status: int, headers: Mapping[str, str], seconds: float, is_named: bool
) -> None:
    service.reply = lambda _: answer_json({"message": "slow down"}, status, {"date": NOW, **headers})
    with pytest.raises(ServiceLimited, match="slow down") as caught:
        web.get("")
    assert (caught.value.seconds, caught.value.is_named) == (seconds, is_named)


def test_a_limit_without_headers_is_known_by_its_words(service: Service, web: Web) -> None:
    service.reply = lambda _: answer_json({"message": "API rate limit exceeded"}, 403)
    with pytest.raises(ServiceLimited):
        web.get("")


@pytest.mark.parametrize(
    ("status", "said", "error", "why"),
    [
        (401, {"message": "bad credentials"}, ServiceRefused, "it refuses: bad credentials (HTTP 401)"),
        (403, {"error": {"message": "not yours"}}, ServiceRefused, "it refuses: not yours (HTTP 403)"),
        (404, {"errorMessages": ["no", "such"]}, ServiceRefused, "it refuses: no; such (HTTP 404)"),
        (400, ["odd"], ServiceRefused, "it refuses: HTTP 400"),
        (418, {"message": "x" * 300}, ServiceRefused, f"it refuses: {'x' * 199}… (HTTP 418)"),
        (300, {}, ServiceRefused, "it refuses: it has moved (HTTP 300): correct its address"),
        (301, {}, ServiceRefused, "it refuses: it has moved (HTTP 301): correct its address"),
        (408, {}, ServiceDown, "it cannot be reached: HTTP 408"),
        (500, {"message": "oops\nthere"}, ServiceDown, "it cannot be reached: oops there (HTTP 500)"),
        (503, {}, ServiceDown, "it cannot be reached: HTTP 503"),
    ],
)
def test_an_error_is_ours_or_the_services(
    service: Service, web: Web, status: int, said: object, error: type[Exception], why: str
) -> None:
    service.reply = lambda _: answer_json(said, status, {"location": "/elsewhere"})
    with pytest.raises(error) as caught:
        web.get("")
    assert str(caught.value) == why
    assert len(service.requests) == 1, "no redirect is followed, nothing is asked twice"


def text_of(size: int) -> bytes:
    return b'"%s"' % (b"x" * (size - 2))


def test_the_largest_answer_is_taken_whole(service: Service, web: Web) -> None:
    service.reply = lambda _: Answer(200, text_of(LARGEST))
    assert len(web.get("").body) == LARGEST - 2


def test_no_answer_is_waited_for_so_long_that_its_role_looks_hung(home: Path) -> None:
    """Nor is a person kept waiting by one part of a question for longer than by the whole."""
    threshold = config.for_looking(Places(home), "system")[0]["heartbeat"]["threshold_seconds"]
    assert PATIENT.total <= threshold / 4
    assert QUICK.connect + QUICK.read <= QUICK.total < PATIENT.total


def test_a_service_that_does_not_answer_as_it_should_is_down_without_a_word_of_ours(service: Service, web: Web) -> None:
    rows: list[tuple[Callable[[HttpRequest], Answer | None], str]] = [
        (drops(), "the connection was cut"),
        (cuts(), "its answer was cut off"),
        (lambda _: Answer(200, b"<html>"), "its answer is no JSON, or was cut off"),
        (lambda _: Answer(200, json.dumps("[" * 9).encode()[1:]), "its answer is no JSON, or was cut off"),
        (lambda _: Answer(200, text_of(LARGEST + 1)), "its answer is larger than 32 MB"),
    ]
    for reply, why in rows:
        service.reply = reply
        with pytest.raises(ServiceDown) as caught:
            web.get(f"path/{TOKEN}")
        assert str(caught.value) == f"it cannot be reached: {why}"


@pytest.mark.parametrize(("piece", "why"), [(b"", "it does not answer in time"), (b" ", "took too long|in time")])
def test_nobody_waits_for_a_service_that_hangs_or_trickles(service: Service, piece: bytes, why: str) -> None:
    web = Web("it", service.address, {}, deadlines=Deadlines(2.0, 0.3, 1.0))

    def pieces() -> Iterator[bytes]:
        while not service.closing.wait(0.1):
            yield piece

    service.reply = lambda _: Answer(200, headers={"content-length": "1000"}, parts=pieces())
    with pytest.raises(ServiceDown, match=why):
        web.get("")


@pytest.mark.parametrize("elsewhere", ["http://127.0.0.1:1/x", "//evil.example/x", "ftp://127.0.0.1/x"])
def test_the_token_goes_to_its_own_address_alone(service: Service, web: Web, elsewhere: str) -> None:
    with pytest.raises(ServiceRefused, match="it names an address elsewhere"):
        web.get(elsewhere)
    assert web.get(f"{service.address}/next").status == 200
    assert [request.path for request in service.requests] == ["/next"]


def test_an_address_elsewhere_is_told_at_a_length_that_can_be_read(web: Web) -> None:
    elsewhere = f"https://evil.example/{'x' * 300}"
    with pytest.raises(ServiceRefused) as caught:
        web.get(elsewhere)
    assert str(caught.value) == f"it refuses: it names an address elsewhere: {elsewhere[:199]}…"


def test_what_was_never_asked_can_be_closed_and_what_was_closed_can_be_asked(service: Service, web: Web) -> None:
    web.close()
    assert web.get("").status == 200
    web.close()
    assert web._session is None
    assert web.get("").status == 200


def test_where_nothing_listens_the_connection_is_refused() -> None:
    with Service() as gone:
        address = gone.address
    with pytest.raises(ServiceDown, match="the connection is refused"):
        Web("it", address, {}).get("")
