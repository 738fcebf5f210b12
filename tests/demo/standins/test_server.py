"""Stand-ins speak HTTP as real services do, and keep what they were asked."""

import http.client
import json
from collections.abc import Iterator

import pytest

from kingdom.demo.standins.server import Answer, HttpRequest, StandIn, answer_json
from tests.waiting import SOON


class Echo(StandIn):
    def answer(self, request: HttpRequest) -> Answer:
        match request.path:
            case "/cut":
                return Answer(cut=True)
            case "/parts":
                return Answer(headers={"content-type": "text/event-stream"}, parts=[b"one ", b"two"])
            case "/unchanged":
                return Answer(304, headers={"etag": '"a"', "date": "Thu, 01 Jan 2026 00:00:00 GMT"})
        return answer_json({"method": request.method, "q": request.query, "said": request.json()})


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as service:
        yield service


@pytest.fixture
def client(echo: Echo) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", echo.port, timeout=SOON)
    yield connection
    connection.close()


def test_it_answers_by_a_function_of_the_request_and_keeps_the_request(
    echo: Echo, client: http.client.HTTPConnection
) -> None:
    client.request("PATCH", "/a?b=1&b=2", json.dumps({"c": 3}))
    assert json.load(client.getresponse()) == {"method": "PATCH", "q": {"b": ["1", "2"]}, "said": {"c": 3}}
    client.request(
        "POST", "/a", iter([b'{"d"', b": 4}"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
    )
    assert json.load(client.getresponse())["said"] == {"d": 4}
    assert echo.wait_for(lambda requests: len(requests) == 2)
    assert [(request.method, request.path) for request in echo.requests] == [("PATCH", "/a"), ("POST", "/a")]


def test_an_answer_may_come_in_parts_and_ends_the_connection(client: http.client.HTTPConnection) -> None:
    client.request("GET", "/parts")
    assert client.getresponse().read() == b"one two"


def test_a_line_may_be_cut_without_a_word(client: http.client.HTTPConnection) -> None:
    client.request("GET", "/cut")
    with pytest.raises(http.client.RemoteDisconnected):
        client.getresponse()


def test_what_has_not_changed_has_no_body_and_may_name_its_own_date(client: http.client.HTTPConnection) -> None:
    client.request("GET", "/unchanged")
    answer = client.getresponse()
    assert (answer.status, answer.read()) == (304, b"")
    assert answer.headers.get_all("date") == ["Thu, 01 Jan 2026 00:00:00 GMT"]
