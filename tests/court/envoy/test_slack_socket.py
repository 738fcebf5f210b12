"""The connection on which people's messages arrive: who is told of them, and when it is made again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.request import SocketModeRequest

from kingdom.court.envoy.channels import slack_socket
from kingdom.court.envoy.channels.base import Stuck
from kingdom.court.envoy.channels.slack import _silent
from kingdom.court.envoy.channels.slack_socket import SocketLine, why
from kingdom.demo.standins.slack import Slack
from tests.court.envoy.slacks import SECRETS
from tests.waiting import SOON, wait_until

DIRECT = {"type": "message", "channel_type": "im", "channel": "D0ANN", "user": "U0ANN", "text": "hi"}


@pytest.fixture
def slack() -> Iterator[Slack]:
    with Slack() as slack:
        yield slack


@pytest.fixture
def open_line(slack: Slack) -> Iterator[Callable[..., SocketLine]]:
    opened: list[SocketLine] = []

    def open_(before: Callable[[], None] = lambda: None, ring: Callable[[], None] = lambda: None) -> SocketLine:
        web = WebClient(token=SECRETS["SLACK_BOT_TOKEN"], base_url=slack.api_url, timeout=5)
        opened.append(SocketLine(web, SECRETS["SLACK_APP_TOKEN"], _silent(), before, ring))
        return opened[-1]

    yield open_
    for line in opened:
        line.close()
        line.join(SOON)


def ended(line: SocketLine) -> SocketLine:
    """Let its thread end, so that what it does can be asked step by step."""
    line.close()
    line.join(SOON)
    assert not line.is_alive()
    return line


def test_who_waits_is_rung_for_each_delivery_and_what_is_heard_is_handed_out_once(
    slack: Slack, open_line: Callable[..., SocketLine]
) -> None:
    rung = threading.Semaphore(0)
    line = open_line(ring=rung.release)
    for number in (1, 2):
        slack.deliver_event({**DIRECT, "ts": f"{number}.5"})
        assert rung.acquire(timeout=SOON)
    heard = line.heard()
    assert [request.payload["event"]["ts"] for request in heard] == ["1.5", "2.5"]
    assert line.heard() == []
    for request in heard:
        line.acknowledge(request)
    assert slack.wait_until(lambda slack: not slack.unacknowledged())


def test_a_line_that_ends_leaves_no_connection_open(slack: Slack, open_line: Callable[..., SocketLine]) -> None:
    line = open_line()
    assert slack.wait_until(lambda slack: slack.lines == 1)
    ended(line)
    assert slack.wait_until(lambda slack: slack.lines == 0)


def test_more_than_is_kept_is_left_to_be_delivered_again(
    open_line: Callable[..., SocketLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_socket, "MOST_HEARD", 2)
    rung: list[None] = []
    line = ended(open_line(ring=lambda: rung.append(None)))
    for number in range(3):
        line._hear(None, SocketModeRequest(type="events_api", envelope_id=str(number), payload={}))
    assert ([request.envelope_id for request in line._heard], len(rung)) == (["0", "1"], 2)


def test_what_comes_before_the_first_connection_is_done_until_it_works_and_then_never_again(
    slack: Slack, open_line: Callable[..., SocketLine]
) -> None:
    done: list[str] = []

    def before() -> None:
        done.append("refused" if not done else "done")
        if done[-1] == "refused":
            raise OSError("not yet")

    line = open_line(before)
    wait_until(lambda: slack.lines == 1 and line.down_since is None, SOON, "it listens")
    slack.cut()
    wait_until(lambda: line.why_down == "the connection was lost", SOON, "the cut is seen")
    wait_until(lambda: slack.lines == 1 and line.down_since is None, SOON, "it listens again")
    assert done == ["refused", "done"]


def test_each_failure_is_followed_by_a_longer_pause_and_says_why(
    slack: Slack, open_line: Callable[..., SocketLine]
) -> None:
    slack.fail("apps.connections.open", error="internal_error", times=100)
    line = ended(open_line())
    line._pause, line.down_since, pauses = 0.0, None, []
    for now in range(100, 108):
        line._connect(float(now))
        pauses.append(line._next_try - now)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert (line.why_down, line.down_since) == ("internal_error", 100)


def test_a_line_is_cut_when_no_ping_was_answered_for_more_than_five_seconds(
    slack: Slack, open_line: Callable[..., SocketLine]
) -> None:
    line = open_line()
    wait_until(lambda: line._pong[0] is not None, SOON, "a ping is answered")
    held, done = threading.Event(), threading.Event()
    line.do(lambda: (held.set(), done.wait(SOON))[0])
    assert held.wait(SOON)
    session = line._client.current_session  # type: ignore[union-attr]
    try:
        line._pong = (session.last_ping_pong_time, 1000.0)
        line._pause = 8.0
        assert [line._is_up(1000.0 + seconds) for seconds in (0, 4.9, 5, 5.1)] == [True, True, True, False]
        assert line._pause == 8.0, "only an answer shows that it works"
        assert not session.is_active()
    finally:
        done.set()


def test_an_answered_ping_makes_the_next_pause_short(slack: Slack, open_line: Callable[..., SocketLine]) -> None:
    line = open_line()
    wait_until(lambda: line._pong[0] is not None, SOON, "a ping is answered")
    assert line._pause == 0.0


def test_who_asks_a_line_that_does_not_move_is_told(open_line: Callable[..., SocketLine]) -> None:
    line = open_line()
    assert line.heard() == []
    line.close()
    line.join(SOON)
    with pytest.raises(Stuck):
        line.heard()


def test_why_it_is_down_is_told_in_two_hundred_characters() -> None:
    assert why(OSError("x" * 300)) == f"OSError: {'x' * 191}"
    answer = SimpleNamespace(data={"ok": False, "error": "e" * 300}, status_code=200)
    assert why(SlackApiError("no", answer)) == "e" * 200
    assert why(SlackApiError("no", SimpleNamespace(data="<html>", status_code=502))) == "HTTP 502"
