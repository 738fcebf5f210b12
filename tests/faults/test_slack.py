"""Slack fails in every way: nothing is lost, nothing is posted or heard twice, and nobody is bothered by it.

The envoy's own process speaks by Slack's library with a Slack on loopback. A row of OUTAGES is one way to fail while
the kingdom speaks, a row of CUTS one while people do; every moment of a post is one at which the envoy is killed.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.demo.standins.server import Answer, HttpRequest
from kingdom.demo.standins.slack import BOT_USER, TEAM, Slack
from tests.faults import homes, oracle, trees
from tests.faults.sweep import StepFails
from tests.waiting import SOON

ENVOY = ("-m", "kingdom.envoy")
BOT, APP = "xoxb-canary-4711", "xapp-canary-4712"
ROOM, DIRECT = "C0KINGDOM", "D0ANN"
BACK_SECONDS = 10.0
CALL_SECONDS, SETTLE_SECONDS = 0.6, 1.2
LONG = "msg-20260207-900"


class World:
    """A home whose envoy speaks with a Slack, and what both saw."""

    def __init__(self, slack: Slack, home: Path, config: dict[str, Any]) -> None:
        self.slack, self.home = slack, home
        part = {"api_url": slack.api_url, "people": ["U0ANN"], "call_seconds": CALL_SECONDS}
        part |= {"settle_seconds": SETTLE_SECONDS, "seconds_between_posts": 0.02, **config}
        homes.make(home, config={"envoy": {"slack": part, "retry": {"backoff_seconds": 0}}})
        self.places = Places(home)
        self.places.env_file.write_text(f"SLACK_BOT_TOKEN={BOT}\nSLACK_APP_TOKEN={APP}\n")
        self.places.env_file.chmod(0o600)
        self.command_lines = ""

    def log(self) -> str:
        path = self.places.role_log("envoy")
        return path.read_text() if path.exists() else ""

    def events(self) -> list[str]:
        return sorted(path.stem for path in self.places.folder("events", "pending").glob("*.json"))

    def put(self, *messages: dict[str, Any]) -> list[str]:
        homes.put(self.home, "messages", "pending", *messages)
        return [message["id"] for message in messages]

    def filed(self, *names: str) -> bool:
        states = oracle.states_of(self.home, "messages")
        return all(states.get(name) == ["sent"] for name in names)

    def posts(self) -> dict[str, list[dict[str, Any]]]:
        """What the kingdom has posted, by the message that it says."""
        found: dict[str, list[dict[str, Any]]] = {}
        for post in self.slack.from_kingdom():
            payload = post.get("metadata", {}).get("event_payload", {})
            found.setdefault(payload.get("message", f"?{post['text'][:20]}"), []).append(post)
        return found

    def canaries(self) -> list[str]:
        """Where a token stands that belongs in .env alone."""
        wrong = [f"a token in {name}" for name, text in self._texts() if BOT in text or APP in text]
        shown = [post for post in self.slack.from_kingdom() if BOT in str(post) or APP in str(post)]
        return wrong + [f"a token in the post {post['ts']}" for post in shown]

    def _texts(self) -> Iterator[tuple[str, str]]:
        yield "a command line", self.command_lines
        for path in self.home.rglob("*"):
            if path.is_file() and path != self.places.env_file:
                with suppress(OSError):
                    yield str(path.relative_to(self.home)), path.read_text("utf-8", "replace")


@contextmanager
def world(slack: Slack | None = None, **config: Any) -> Iterator[World]:
    with slack or Slack() as running:
        home = trees.new_folder()
        yield World(running, home, config)
        trees.remove(home)


@contextmanager
def envoy(tree: Path, here: World) -> Iterator[subprocess.Popen[str]]:
    with trees.running(tree, here.home, ENVOY) as process:
        yield process
        with suppress(OSError):
            here.command_lines += Path(f"/proc/{process.pid}/cmdline").read_text()


@contextmanager
def listening(tree: Path, here: World) -> Iterator[subprocess.Popen[str]]:
    """An envoy that hears; it must still be there at the end."""
    with envoy(tree, here) as process:
        if not trees.until(lambda: here.slack.lines, SOON):
            raise StepFails("the envoy never listens")
        yield process
        if process.poll() is not None:
            raise StepFails(f"the envoy ended with {process.returncode}")


def speeches() -> list[dict[str, Any]]:
    """Two tasks with all that is said of them, in two threads, and a long word for everybody."""
    found: list[dict[str, Any]] = []
    for number in (1, 2):
        task = f"task-20260207-00{number}"
        way_back = {"checkpoint_path": "x", "reply_context": {"general": homes.GENERAL, "task_id": task}}
        asked = {"type": "human_input_request", "urgency": "high", "context": way_back}
        for step, fields in enumerate(({"type": "thread_start"}, asked, {"type": "thread_update"}, {})):
            common = {"task_id": task, "channel": "kingdom", "content": f"word {step} of {task}"}
            found.append(homes.message(f"msg-20260207-{number}{step:02d}", **{**common, **fields}))
    return [*found, homes.message(LONG, type="report", content="x\n" * 2_000)]


def wrong_in(here: World, names: list[str]) -> list[str]:
    """What is lost, doubled, in the wrong thread, left behind or shown."""
    posts, expected = here.posts(), {*names, f"{LONG}.2"}
    wrong = [
        f"{name} was posted {len(posts.get(name, ()))} times" for name in expected if len(posts.get(name, ())) != 1
    ]
    wrong += [f"nobody wrote {name}" for name in posts if name not in expected]
    for number in (1, 2):
        first = posts.get(f"msg-20260207-{number}00", [{}])[0]
        for name in (f"msg-20260207-{number}0{step}" for step in (1, 2, 3)):
            if posts.get(name, [{}])[0].get("thread_ts") != first.get("ts"):
                wrong.append(f"{name} is not in its thread")
    states = oracle.states_of(here.home, "messages")
    wrong += [f"{name} lies in {states.get(name)}" for name in names if states.get(name) != ["sent"]]
    return wrong + here.canaries()


def _nothing_to_be_looked_up(slack: Slack) -> None:
    slack.fail("chat.postMessage", cut=True)
    for method in ("conversations.list", "conversations.history", "conversations.replies"):
        slack.fail(method, status=500)


OUTAGES: dict[str, Callable[[Slack], None]] = {
    "5xx": lambda slack: slack.fail("chat.postMessage", status=503, times=2),
    "429 storm": lambda slack: slack.fail("chat.postMessage", status=429, retry_after=0.1, times=12),
    "ratelimited": lambda slack: slack.fail("chat.postMessage", error="ratelimited", times=2),
    "an error of its own": lambda slack: slack.fail("chat.postMessage", error="internal_error", times=2),
    "a token taken back": lambda slack: slack.fail("chat.postMessage", error="token_revoked", times=2),
    "slow": lambda slack: slack.fail("chat.postMessage", delay=0.3, times=20),
    "done late": lambda slack: slack.fail("chat.postMessage", delay=2.4, times=1),
    "it hangs": lambda slack: slack.fail("chat.postMessage", hangs=True, times=2),
    "it is killed and comes back": lambda slack: slack.fail("chat.postMessage", dies=1.0),
    "half an answer": lambda slack: slack.fail("chat.postMessage", half=True, times=2),
    "no JSON": lambda slack: slack.fail("chat.postMessage", garbage=True, times=2),
    "cut after the post": lambda slack: slack.fail("chat.postMessage", cut=True, times=2),
    "cut, and nothing can be looked up": _nothing_to_be_looked_up,
    "all methods": lambda slack: slack.fail("*", status=500, times=4),
    "reactions": lambda slack: slack.fail("reactions.add", status=429, times=50),
}
QUICK = ("429 storm", "cut after the post", "it is killed and comes back")
SLOWLY: dict[str, dict[str, Any]] = {"done late": {"settle_seconds": 3.0}}
"""Where a post appears after the envoy could have looked for it, were it in a hurry."""


def outage(tree: Path, name: str) -> list[str]:
    """What is wrong after Slack has failed in one way while the kingdom spoke."""
    with world(**SLOWLY.get(name, {})) as here, listening(tree, here):
        OUTAGES[name](here.slack)
        names = here.put(*speeches())
        here.put(homes.message("msg-console", source_ref={"source": "console"}))
        if not trees.until(lambda: here.filed("msg-console"), SOON):
            return ["the console waits for Slack"]
        trees.until(lambda: here.filed(*names), SOON)
        loud = here.log().count("its messages wait")
        return [f"it was said {loud} times that Slack is away"] * (loud > 3) + wrong_in(here, names)


def refused(tree: Path) -> list[str]:
    """What is wrong after nobody listened at Slack's address for a while."""
    with Slack() as gone:
        port = gone.port
    home = trees.new_folder()
    here = World(gone, home, {})
    with envoy(tree, here):
        names = here.put(*speeches())
        if not trees.until(lambda: "its messages wait" in here.log(), SOON):
            return ["nobody says that Slack cannot be reached"]
        with Slack(port) as here.slack:
            trees.until(lambda: here.filed(*names), SOON)
            wrong = wrong_in(here, names)
    trees.remove(home)
    return wrong


class Deadly(Slack):
    """Kills the envoy at one moment of its post of this number."""

    def __init__(self, number: int, moment: str) -> None:
        super().__init__()
        self._left, self._moment = number, moment
        self.victim: subprocess.Popen[str] | None = None
        self.has_killed = threading.Event()

    def answer(self, request: HttpRequest) -> Answer:
        self._left -= request.path.endswith("chat.postMessage")
        if self._left != 0 or not request.path.endswith("chat.postMessage"):
            return super().answer(request)
        if self._moment == "before":
            return self._kill()
        answer = super().answer(request)
        if self._moment == "after":
            return self._kill()
        threading.Timer(float(self._moment), self._kill).start()
        return answer

    def _kill(self) -> Answer:
        if self.victim is not None:
            self.victim.kill()
        self.has_killed.set()
        return Answer(cut=True)


def killed(tree: Path, number: int, moment: str) -> list[str]:
    """What is wrong after the envoy was killed at a moment of one of its posts, and started again."""
    deadly = Deadly(number, moment)
    with world(deadly, seconds_between_posts=0) as here:
        names = here.put(*speeches())
        with envoy(tree, here) as deadly.victim:
            if not deadly.has_killed.wait(SOON):
                return ["it never got so far"]
            deadly.victim.wait(SOON)
        with envoy(tree, here):
            trees.until(lambda: here.filed(*names), SOON)
        return wrong_in(here, names)


def talk(slack: Slack) -> list[str]:
    """Let a person write. Return the ids of the events that this must become."""
    return sorted(f"evt-slack-msg-{slack.say('hello', channel=DIRECT).replace('.', '-')}" for _ in range(6))


def _cut_in_the_middle(slack: Slack) -> list[str]:
    expected = talk(slack)
    slack.cut()
    return sorted([*expected, *talk(slack)])


def _dead_line(slack: Slack) -> list[str]:
    slack.deaf = True
    expected = talk(slack)
    slack.wait_until(lambda _: False, BACK_SECONDS - 2)
    slack.deaf = False
    return expected


def _cut_and_away(slack: Slack, **how: Any) -> list[str]:
    slack.fail("apps.connections.open", times=2, **how)
    slack.cut()
    return talk(slack)


def _renewed(slack: Slack) -> list[str]:
    expected = talk(slack)
    slack.disconnect()
    return sorted([*expected, *talk(slack)])


def _again(slack: Slack) -> list[str]:
    expected = talk(slack)
    for _ in range(3):
        slack.deliver_again()
    return expected


CUTS: dict[str, Callable[[Slack], list[str]]] = {
    "the line is cut": _cut_in_the_middle,
    "a line that is dead and open": _dead_line,
    "cut, and Slack does not answer": lambda slack: _cut_and_away(slack, status=503),
    "cut, and Slack limits us": lambda slack: _cut_and_away(slack, status=429, retry_after=1),
    "a line that Slack renews": _renewed,
    "delivered again and out of order": _again,
}


def cut(tree: Path, name: str) -> list[str]:
    """What is wrong after the line failed in one way while people spoke."""
    with world() as here, listening(tree, here):
        expected = CUTS[name](here.slack)
        begun = time.monotonic()
        is_heard = trees.until(lambda: here.events() == expected and not here.slack.unacknowledged(), SOON)
        took = time.monotonic() - begun
        wrong = [] if is_heard else [f"of {len(expected)} events there are {here.events()}"]
        wrong += [f"the line was back after {took:.0f} s"] if took > BACK_SECONDS + 5 else []
        return wrong + [f"it says {post['text']!r}" for post in here.slack.from_kingdom()] + here.canaries()


FORGED: list[dict[str, Any]] = [
    *({"user": user} for user in ("U0EVIL", BOT_USER, None, ["U0ANN"])),
    *({"subtype": subtype} for subtype in ("message_changed", "bot_message")),
    *({team: "T0EVIL"} for team in ("team", "user_team")),
    *({"ts": ts} for ts in ("1.2/../../x", "now", 5)),
    {"bot_id": "B0EVIL"},
    {"thread_ts": "../.."},
    {"channel": "D/../x"},
    {"text": None},
    {"type": "reaction_added"},
]
OTHERWISE_FORGED = 9


def forged(tree: Path) -> list[str]:
    """What is wrong after people who are not listed, other teams and we ourselves have spoken."""
    with world() as here, listening(tree, here):
        slack = here.slack
        question = homes.message("msg-1", type="human_input_request", task_id="task-1", content="A?\n- yes\n- no")
        here.put(question)
        assert trees.until(lambda: here.filed("msg-1"), SOON)
        asked = slack.from_kingdom()[0]
        event = {"type": "message", "channel_type": "im", "channel": DIRECT, "user": "U0ANN", "text": "do it"}
        for number, change in enumerate(FORGED):
            slack.deliver_event({**event, "ts": f"{number + 1}.1", **change})
        slack.deliver_event({**event, "ts": "77.1"}, team="T0EVIL")
        slack.deliver_event({**event, "ts": "76.1", "team": TEAM, "user_team": TEAM}, team="T0EVIL")
        slack.deliver_event({**event, "ts": "78.1", "channel_type": "channel", "channel": "C0GENERAL"})
        slack.press(asked["ts"], "yes", user="U0EVIL")
        slack.press(asked["ts"], "yes", team="T0EVIL")
        slack.deliver_event({**event, "ts": "79.1", "thread_ts": asked["ts"], "channel": ROOM}, team="T0EVIL")
        for kind in ("events_api", "interactive", "slash_commands"):
            slack.deliver(kind, {"payload": "forged", "event": "forged"})
        if not trees.until(lambda: not slack.unacknowledged(), SOON):
            return ["it is not acknowledged, and would come again and again"]
        accepted = [f"accepted: {name}" for name in here.events()]
        slack.say("brief me", channel=DIRECT)
        is_heard = trees.until(lambda: len(here.events()) == len(accepted) + 1, SOON)
        return accepted + ([] if is_heard else ["who is listed is not heard"]) + here.canaries()


def burst(tree: Path, count: int, pace: float) -> list[str]:
    """What is wrong after so many messages at once, to a Slack that limits who posts faster than the pace."""
    with world(Slack(seconds_between_posts=pace * 0.9), seconds_between_posts=pace) as here, listening(tree, here):
        words = [homes.message(f"msg-{n:05d}", channel=ROOM, content=f"word {n}") for n in range(count)]
        names = here.put(*words)
        trees.until(lambda: here.filed(*names), SOON + 2 * count * pace)
        said = [post["text"] for post in here.slack.from_kingdom(ROOM)]
        wrong = [f"{text} was posted {n} times" for text, n in Counter(said).items() if n != 1]
        wrong += [] if len(said) == count else [f"{len(said)} of {count} were posted"]
        wrong += [] if said == sorted(said, key=lambda text: int(text.split()[1])) else ["out of order"]
        calls = sum(method == "chat.postMessage" for method, _ in here.slack.calls)
        return wrong + ([] if calls == count else [f"{calls} calls for {count} posts"])


def stops(tree: Path) -> list[str]:
    """What is wrong when it is stopped while a Slack that hangs is being called."""
    with world(call_seconds=30) as here, envoy(tree, here) as process:
        heart, beats = here.places.heartbeat("envoy"), set()
        assert trees.until(lambda: here.slack.lines and heart.exists(), SOON)
        here.slack.fail("chat.postMessage", delay=25)
        here.put(homes.message("msg-1"))

        def beaten() -> bool:
            beats.add(heart.read_bytes())
            return len(beats) > 2

        wrong = [] if trees.until(beaten, 20) else ["it does not beat while Slack hangs"]
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(20)
        except subprocess.TimeoutExpired:
            return [*wrong, "it does not end within 20 s"]
        return wrong + ([] if code == 0 else [f"it ended with {code}"])


@pytest.mark.parametrize("name", [name for name in OUTAGES if trees.CAMPAIGN or name in QUICK])
def test_nothing_is_lost_or_doubled_while_slack_fails(name: str, figure: oracle.Figure) -> None:
    wrong = outage(trees.program(), name)
    figure(f"Slack, {name}: {len(wrong)} lost, doubled or loud")
    assert wrong == []


def test_nothing_is_lost_while_nobody_listens_at_slacks_address(figure: oracle.Figure) -> None:
    wrong = refused(trees.program())
    figure(f"Slack, refused connections: {len(wrong)} lost, doubled or loud")
    assert wrong == []


MOMENTS = ("before", "after", "0", "0.002", "0.005", "0.01", "0.02", "0.05")


def test_a_kill_at_any_moment_of_any_post_loses_and_doubles_nothing(figure: oracle.Figure) -> None:
    every = [(number, moment) for number in range(1, 11) for moment in MOMENTS]
    points = every if trees.CAMPAIGN else [(2, "after"), (4, "before"), (10, "0.005")]
    wrong = [f"post {point}: {line}" for point in points for line in killed(trees.program(), *point)]
    figure(f"Slack, kill -9 around posts: {len(points)} points, {len(wrong)} lost or doubled")
    assert wrong == []


@pytest.mark.parametrize("name", [name for name in CUTS if trees.CAMPAIGN or "again" in name or "is cut" in name])
def test_what_people_say_while_the_line_fails_is_heard_once(name: str, figure: oracle.Figure) -> None:
    wrong = cut(trees.program(), name)
    figure(f"Slack, {name}: {len(wrong)} lost or doubled")
    assert wrong == []


def test_forged_input_is_not_accepted(figure: oracle.Figure) -> None:
    wrong = forged(trees.program())
    figure(f"Slack, forged, foreign and own input: {len(FORGED) + OTHERWISE_FORGED} kinds, {len(wrong)} accepted")
    assert wrong == []


def test_many_messages_at_once_are_paced(figure: oracle.Figure) -> None:
    count, pace = (300, 1.0) if trees.CAMPAIGN else (30, 0.1)
    wrong = burst(trees.program(), count, pace)
    figure(f"Slack, {count} messages at once, one in {pace:g} s: {len(wrong)} wrong")
    assert wrong == []


def test_a_slack_that_hangs_keeps_the_envoy_neither_from_beating_nor_from_ending() -> None:
    assert stops(trees.program()) == []


def echo(tree: Path) -> list[str]:
    """What is wrong after our own words came back, where everybody is heard."""
    with world(people=["*"]) as here, listening(tree, here):
        here.slack.say("we ourselves", user=BOT_USER, channel=DIRECT)
        here.slack.say("we ourselves", user=BOT_USER, channel=DIRECT, bot_id="B0BOT")
        trees.until(lambda: not here.slack.unacknowledged(), SOON)
        return [f"accepted: {name}" for name in here.events()]


def test_our_own_words_never_come_back(figure: oracle.Figure) -> None:
    wrong = echo(trees.program())
    figure(f"Slack, own words: {len(wrong)} heard")
    assert wrong == []
