"""GitHub's notifications: each thread that has something new becomes an event, and then is marked as read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from kingdom.base.records.messages import Event
from kingdom.base.times import moment, stamp
from kingdom.base.words import count, one_line
from kingdom.court.connections import github
from kingdom.court.connections.base import ServiceDown, ServiceRefused
from kingdom.court.connections.web import HttpAnswer, Web
from kingdom.court.sentinel.watchers.base import LONGEST_HEADLINE, ServiceWatcher, WatcherKit, shortened

SOURCE = "github"
PER_PAGE = 50
MOST_PAGES = 100
MOST_PAGES_OF_THREAD = 10
"""Pages of 100 that are read of what was written in one thread, or done to it."""
GONE = 404
KINDS = {"PullRequest": "pr", "Issue": "issue"}
REASONS = {"assign": "assigned", "mention": "mentioned"}
"""Reasons that are called otherwise in the types of events."""
ISSUE_EVENTS = {"review_requested": "review_requested", "assign": "assigned"}
"""Reasons that are caused without a word, and what an issue's history calls them: who wrote last says nothing there."""
URGENT = ("github.pr.review_requested", "github.pr.mentioned", "github.pr.assigned", "github.issue.assigned")
"""Of normal priority; all others are low."""
ASKS = ("review_requested", "mention", "assign")
"""Reasons that ask something of us: whoever does it needs the text that stands there, and where it lies."""
MOST_REMEMBERED = 10_000
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z\Z")

Notification = Mapping[str, Any]
Payload = Mapping[str, Any]


@dataclass(frozen=True)
class GitHubLook:
    """What one look has found."""

    notifications: Sequence[Notification]
    #: The mark of this state of the list: while it holds, a look costs nothing.
    etag: str
    #: When this was, by GitHub's clock.
    at: float
    #: What new events say beside their notifications, by id; None for those that our own or a bot's words would make.
    details: Mapping[str, Payload | None]
    #: A second look, at threads that the last one has marked as read.
    is_second: bool = False
    #: What there is to mark as read, by thread: the moment that its event is about.
    to_mark: dict[str, str] = field(default_factory=dict)


class GitHubWatcher(ServiceWatcher[GitHubLook]):
    """State: `begin`, before which nothing makes events, set by the first look that succeeds, from the time of the
    first try, `began`; `etag`; `marking`, threads about to be marked as read.

    Something may happen to a thread between a look and its mark, which would hide it. So a look follows that finds
    such threads although they are read.
    """

    def __init__(self, kit: WatcherKit) -> None:
        super().__init__(kit)
        self._login = ""
        self._details: dict[str, Payload | None] = {}
        self._has_reported_misshapen = False

    def is_off(self) -> str:
        return "" if github.token(self._kit.secrets) else "no GH_TOKEN in .env; `kingdom connect github` sets it up"

    def fetch(self) -> GitHubLook | None:
        self._note_first_try()
        marking = self._kit.state.get("marking") or {}
        query = {"per_page": str(PER_PAGE)}
        if marking:
            answer = self._open().get("notifications", {**query, "all": "true", "since": min(marking.values())})
        else:
            known = {"If-None-Match": str(self._kit.state.get("etag"))} if self._kit.state.get("etag") else {}
            answer = self._open().get("notifications", query, **known)
        self.least_wait = _seconds(answer.headers.get("x-poll-interval", ""))
        if answer.status == 304:
            return None
        every = self._every(answer)
        self._begin_at(answer.at)
        notifications = [thread for thread in every if _is_open(thread, marking)]
        details = {id_of(thread): self._details_of(thread) for thread in notifications if self._is_candidate(thread)}
        return GitHubLook(notifications, answer.headers.get("etag", ""), answer.at, details, is_second=bool(marking))

    def parse(self, found: GitHubLook) -> list[Event]:
        begin = str(self._kit.state.get("begin"))
        in_scope = [thread for thread in found.notifications if self._is_in_scope(thread)]
        new = [thread for thread in in_scope if self._is_new(thread, begin, found)]
        events = [_event(thread, found.details.get(id_of(thread)) or {}, self._kit.clock()) for thread in new]
        self._report_older([thread for thread in in_scope if str(thread["updated_at"]) < begin])
        ids = {event.id for event in events}
        found.to_mark.update({thread["id"]: thread["updated_at"] for thread in in_scope if id_of(thread) in ids})
        if found.to_mark:
            self._kit.state.set("marking", dict(found.to_mark))
            self._kit.state.remove("etag")
        return events

    def after_emit(self, found: GitHubLook, is_whole: bool) -> bool:
        """Mark as read what is safe with us. Only a look without anything new leaves its mark: lists shift."""
        for thread in found.notifications:
            if thread["id"] in found.to_mark and self._kit.is_known(id_of(thread)):
                self._mark(thread["id"])
                self._details.pop(id_of(thread), None)
        if found.to_mark:
            return is_whole and not found.is_second
        self._kit.state.remove("marking")
        if is_whole and not found.is_second:
            self._kit.state.set("etag", found.etag)
        return False

    def _open(self) -> Web:
        if self._web is None:
            self._web = github.connect(self._kit.places, self._kit.secrets)
        return self._web

    def _every(self, answer: HttpAnswer) -> list[Notification]:
        """Return what stands on this page and all that follow, once each. Between two pages the list may shift."""
        found: dict[str, Notification] = {}
        for _ in range(MOST_PAGES):
            if not isinstance(answer.body, list):
                raise ServiceDown(service=github.NAME, why="its answer is no list of notifications")
            for thread in answer.body:
                if _is_sound(thread):
                    found.setdefault(id_of(thread), thread)
                else:
                    self._report_misshapen(thread)
            following = answer.next_page()
            if not following:
                break
            answer = self._open().get(following)
        return list(found.values())

    def _begin_at(self, now: float) -> None:
        """Set the moment before which nothing makes events, by GitHub's clock: the first look is bounded.

        It counts from the first try, which may have met a limit.
        """
        if not self._kit.state.get("begin"):
            tried_for = max(0.0, self._kit.clock() - moment(str(self._kit.state.get("began"))))
            self._kit.state.set("begin", stamp(now - tried_for - float(self._kit.config["first_look_minutes"]) * 60))

    def _is_in_scope(self, thread: Notification) -> bool:
        scope = self._kit.config["scope"]
        repos, reasons = scope["repos"] or ("*",), scope["filter_reasons"] or (thread["reason"],)
        name = str(thread["repository"]["full_name"]).lower()
        return thread["reason"] in reasons and any(fnmatchcase(name, str(repo).lower()) for repo in repos)

    def _is_new(self, thread: Notification, begin: str, found: GitHubLook) -> bool:
        return str(thread["updated_at"]) >= begin and found.details.get(id_of(thread), {}) is not None

    def _is_candidate(self, thread: Notification) -> bool:
        """Return whether GitHub shall be asked for more about it."""
        begin = str(self._kit.state.get("begin") or "")
        return (
            self._is_in_scope(thread) and str(thread["updated_at"]) >= begin and not self._kit.is_known(id_of(thread))
        )

    def _details_of(self, thread: Notification) -> Payload | None:
        """Return what GitHub tells of it. A look that fails half-way does not ask all of it again."""
        name = id_of(thread)
        if name not in self._details:
            if len(self._details) >= MOST_REMEMBERED:
                self._details.clear()
            self._details[name] = self._fetch_details(thread)
        return self._details[name]

    def _fetch_details(self, thread: Notification) -> Payload | None:
        """Return what its event says beside it; None when nobody but we or bots have written since it was read."""
        writings = self._latest_writings(thread)
        if writings is None:
            return None
        return {
            **self._description_of(thread),
            "comments": [_comment(entry) for entry in writings if isinstance(entry, dict)],
        }

    def _description_of(self, thread: Notification) -> Payload:
        """Return what the pull request or issue says by which something is asked of us."""
        if thread["reason"] not in ASKS or not _number(thread):
            return {}
        subject = self._body_at(_address(thread, "pulls" if thread["subject"]["type"] == "PullRequest" else "issues"))
        if not isinstance(subject, dict):
            return {}
        base = subject.get("base")
        return {
            "url": subject.get("html_url"),
            "author": _login(subject),
            "description": shortened(str(subject.get("body") or "")),
            "base": base.get("ref") if isinstance(base, dict) else None,
        }

    def _latest_writings(self, thread: Notification) -> list[Any] | None:
        """Return what somebody has written last, if anything; None when it was only we, or a bot."""
        latest = str(thread["subject"].get("latest_comment_url") or "")
        comment = self._body_at(latest) if "/comments/" in latest else None
        if comment is None or self._is_person(comment):
            return [comment]
        # Somebody may have written or asked before us, and neither has been read.
        since, issue_event = self._read_until(thread), ISSUE_EVENTS.get(thread["reason"])
        written = (entry for address in _writings(thread, since) for entry in self._entries(address))
        by_people = (entry for entry in written if _moment_of(entry) >= since and self._is_person(entry))
        if found := list(islice(by_people, 1)):
            return found
        done = self._entries(f"{_address(thread)}/events?per_page=100") if issue_event else ()
        is_asked = any(_moment_of(entry) >= since and self._asks_us(entry, issue_event) for entry in done)
        return [] if is_asked else None

    def _read_until(self, thread: Notification) -> str:
        """Return since when nobody has looked. A thread that we mark may have gone on between the look and the mark."""
        marked = (self._kit.state.get("marking") or {}).get(thread["id"])
        if marked:
            return stamp(moment(marked) + 1)
        return str(thread.get("last_read_at") or self._kit.state.get("begin") or thread["updated_at"])

    def _entries(self, address: str) -> Iterator[Any]:
        """Yield what lies at an address, page by page. None for what is gone or has too many pages."""
        for _ in range(MOST_PAGES_OF_THREAD):
            answer = self._answer_at(address)
            if answer is None:
                break
            yield from answer.body if isinstance(answer.body, list) else [answer.body]
            address = answer.next_page()
            if not address:
                return
        yield None

    def _asks_us(self, entry: Any, issue_event: str | None) -> bool:
        """Return whether somebody, a bot too, has asked this of us; True for what cannot be read."""
        if not isinstance(entry, dict):
            return True
        asked = entry.get("requested_reviewer") or entry.get("assignee") or {}
        asker = entry.get("review_requester") or entry.get("assigner") or {}
        is_of_us = "requested_team" in entry or asked.get("login") == self._me()
        return entry.get("event") == issue_event and is_of_us and asker.get("login") != self._me()

    def _is_person(self, comment: Any) -> bool:
        """Return whether a person other than us wrote this; True for what is gone."""
        user = comment.get("user") if isinstance(comment, dict) else None
        if not isinstance(user, dict):
            return True
        return user.get("type") != "Bot" and user.get("login") != self._me()

    def _me(self) -> str:
        if not self._login:
            self._login = str(self._open().get("user").body["login"])
        return self._login

    def _body_at(self, address: str) -> Any:
        answer = self._answer_at(address)
        return answer.body if answer else None

    def _answer_at(self, address: str) -> HttpAnswer | None:
        """Return what lies at an address of GitHub's; None when it is gone, or not for us."""
        try:
            return self._open().get(address)
        except ServiceRefused as error:
            if error.facts.get("status") in (403, GONE, 410):
                return None
            raise

    def _mark(self, thread: str) -> None:
        try:
            self._open().ask("PATCH", f"notifications/threads/{thread}")
        except ServiceRefused as error:
            if error.facts.get("status") != GONE:
                raise

    def _report_misshapen(self, thread: Any) -> None:
        if not self._has_reported_misshapen:
            self._has_reported_misshapen = True
            self._kit.tell(f"github: skipped a notification in an unknown format: {one_line(thread, 200)}")

    def _report_older(self, older: Sequence[Notification]) -> None:
        if older and not self._kit.state.get("told_older"):
            begin = self._kit.state.get("begin")
            number = count(len(older), "unread notification")
            self._kit.tell(f"github: {number} from before {begin} make no events, and stay unread")
        self._kit.state.set("told_older", True)


def id_of(thread: Notification) -> str:
    """Return the id of the event that a notification becomes: another one when something new has happened."""
    return f"evt-github-{thread['id']}-{thread['updated_at']}"


def type_of(reason: str, subject_type: str) -> str:
    return f"github.{KINDS.get(subject_type, 'notification')}.{REASONS.get(reason, reason)}"


def _event(thread: Notification, details: Payload, now: float) -> Event:
    subject, number = thread["subject"], _number(thread)
    type_, title = type_of(str(thread["reason"]), str(subject["type"])), str(subject["title"])
    payload = {
        "headline": one_line(f"#{number} {title}" if number else title, LONGEST_HEADLINE),
        "reason": thread["reason"],
        "subject_title": shortened(title),
        "subject_url": subject.get("url"),
        "subject_type": subject["type"],
        "updated_at": thread["updated_at"],
        "pr_number": number if subject["type"] == "PullRequest" else None,
        "issue_number": number if subject["type"] == "Issue" else None,
        "latest_comment_url": subject.get("latest_comment_url"),
        "notification_thread_id": thread["id"],
        **details,
    }
    return Event(
        id=id_of(thread),
        type=type_,
        source=SOURCE,
        repo=thread["repository"]["full_name"],
        payload=payload,
        priority="normal" if type_ in URGENT else "low",
        created_at=stamp(now),
    )


def _number(thread: Notification) -> str | None:
    """Return the number of a pull request or an issue; None for anything else."""
    number = str(thread["subject"].get("url") or "").rpartition("/")[2]
    return number if thread["subject"]["type"] in KINDS and number.isdigit() else None


def _comment(comment: Mapping[str, Any]) -> Payload:
    text, at = shortened(str(comment.get("body") or "")), comment.get("created_at") or comment.get("submitted_at")
    return {"author": _login(comment), "text": text, "at": at}


def _login(written: Mapping[str, Any]) -> str | None:
    user = written.get("user")
    return str(user.get("login")) if isinstance(user, dict) else None


def _is_open(thread: Notification, marking: Mapping[str, str]) -> bool:
    """Return whether it is unread, or was marked as read by us before we had seen what is new in it."""
    return bool(thread["unread"]) or str(thread["updated_at"]) > marking.get(str(thread["id"]), "9")


def _is_sound(thread: Any) -> bool:
    try:
        moment(thread["updated_at"])
        subject, repository = thread["subject"], thread["repository"]
        texts = (thread["id"], thread["reason"], subject["title"], subject["type"], repository["full_name"])
        return bool(_MOMENT.match(thread["updated_at"])) and all(isinstance(text, str) for text in texts)
    except (KeyError, TypeError, ValueError):
        return False


def _address(thread: Notification, kind: str = "issues") -> str:
    """Return where a thread's issue lies, which a pull request is as well; of `pulls`, where it lies as one."""
    number = str(thread["subject"]["url"]).rpartition("/")[2]
    return f"repos/{thread['repository']['full_name']}/{kind}/{number}"


def _writings(thread: Notification, since: str) -> Iterator[str]:
    """Yield where a thread keeps what people write: its own text, comments, comments on lines, reviews."""
    issue, asked = _address(thread), f"since={since}&per_page=100"
    yield from (issue, f"{issue}/comments?{asked}")
    if thread["subject"]["type"] == "PullRequest":
        pull = _address(thread, "pulls")
        yield from (f"{pull}/comments?{asked}", f"{pull}/reviews?per_page=100")


def _moment_of(entry: Any) -> str:
    """Return when something was written or done, later than all else when it does not say so."""
    when = (entry.get("submitted_at") or entry.get("created_at")) if isinstance(entry, dict) else None
    return when if isinstance(when, str) else "9"


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else 0.0
