"""Jira's tickets: one that is seen for the first time, that changed its status, or that people have commented."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import ceil
from typing import Any

from kingdom.base.records.messages import Event
from kingdom.base.times import stamp
from kingdom.base.words import one_line
from kingdom.court.connections import jira
from kingdom.court.connections.base import MISSHAPEN, ServiceDown, is_set_up
from kingdom.court.connections.web import Web
from kingdom.court.sentinel.watchers.adf import plain
from kingdom.court.sentinel.watchers.base import LONGEST_HEADLINE, ServiceWatcher, WatcherKit, shortened

SOURCE = "jira"
FIELDS = ("summary", "status", "priority", "labels", "updated", "comment", "description")
PER_PAGE = 100
MOST_PAGES = 100
MOST_COMMENTS = 100
MOST_KNOWN = 5000
"""Tickets that are remembered at least; the one not seen for longest goes first, and would count as new."""
OVERLAP_MINUTES = 2
"""Windows overlap: a search knows whole minutes, and finds what has just changed a moment later."""
CURSOR = "%Y/%m/%d %H:%M"
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*-\d+\Z")
_TIME = re.compile(r"\d{4}-?\d\d-?\d\d")
"""How a moment begins, with or without its marks."""

Ticket = Mapping[str, Any]
Known = Mapping[str, Any]


@dataclass(frozen=True)
class JiraLook:
    """What one look has found."""

    tickets: Sequence[Ticket]
    #: When it began, by Jira's clock.
    at: float
    #: The account that we are.
    me: str


class JiraWatcher(ServiceWatcher[JiraLook]):
    """State: `last_check`, in UTC; `known_issues`, what each ticket was like when it was last looked at; `making`,
    what they will be like once the events that are about to be made are there.
    """

    def __init__(self, kit: WatcherKit) -> None:
        super().__init__(kit)
        self._me = ""
        self._site = ""
        self._next: dict[str, tuple[str, Known]] = {}
        self._misshapen: set[str] = set()

    def is_off(self) -> str:
        if is_set_up(jira.JiraService(), self._kit.secrets):
            return ""
        missing = [need.name for need in jira.NEEDS if not need.value(self._kit.secrets)]
        return f"no {', '.join(missing)} in .env; `kingdom connect jira` sets it up"

    def fetch(self) -> JiraLook | None:
        self._note_first_try()
        if not self._me:
            self._site = jira.site(self._open(), self._kit.secrets)
            self._me = str(self._open().get("rest/api/3/myself").body["accountId"])
        minutes = self._minutes(self._kit.clock())
        tickets, at = self._search(minutes)
        if self._kit.state.get("last_check") and self._minutes(at) > minutes:
            # Our clock has been set back: by Jira's own the window was too short.
            tickets, _ = self._search(self._minutes(at))
        return JiraLook([self._whole(ticket) for ticket in tickets], at, self._me)

    def parse(self, found: JiraLook) -> list[Event]:
        known = self._known()
        self._next, events = {}, []
        for ticket in found.tickets:
            try:
                event, then = self._judged(ticket, known.get(str(ticket["key"])), found.me)
            except MISSHAPEN as error:
                self._report_misshapen(ticket, error)
                continue
            self._next[str(ticket["key"])] = (event.id if event else "", then)
            events += [event] if event else []
        making = {key: {"event": id, "then": then} for key, (id, then) in self._next.items() if id}
        if making:
            self._kit.state.set("making", making)
        return events

    def after_emit(self, found: JiraLook, is_whole: bool) -> bool:
        """Remember what the tickets are like, but those whose events are held back."""
        known = dict(self._known())
        for key, (id, then) in self._next.items():
            if not id or self._kit.is_known(id):
                known.pop(key, None)  # so that it stands at the end, among those that were seen last
                known[key] = then
        most = max(MOST_KNOWN, 2 * len(self._next))
        self._kit.state.set("known_issues", dict(islice(known.items(), max(0, len(known) - most), None)))
        self._kit.state.remove("making")
        if is_whole:
            self._kit.state.set("last_check", datetime.fromtimestamp(found.at, UTC).strftime(CURSOR))
        return False

    def _open(self) -> Web:
        if self._web is None:
            self._web = jira.connect(self._kit.secrets)
        return self._web

    def _minutes(self, now: float) -> int:
        """Return how far back to look: relative, because times in a query are in the account's zone."""
        cursor = self._kit.state.get("last_check")
        try:
            last = datetime.strptime(str(cursor), CURSOR).replace(tzinfo=UTC).timestamp()
        except ValueError:
            tried_for = max(0.0, now - _seconds(str(self._kit.state.get("began"))))
            return max(1, ceil(float(self._kit.config["first_look_minutes"]) + tried_for / 60))
        return max(1, ceil((now - last) / 60)) + OVERLAP_MINUTES

    def _search(self, minutes: int) -> tuple[list[Ticket], float]:
        """Return the tickets that changed within so many minutes, and when Jira was asked, by its own clock."""
        jql = f"({self._kit.config['scope']['jql_base']}) AND updated >= -{minutes}m ORDER BY updated ASC"
        asked: dict[str, Any] = {"jql": jql, "fields": list(FIELDS), "expand": "changelog", "maxResults": PER_PAGE}
        found: dict[str, Ticket] = {}
        at = None
        for _ in range(MOST_PAGES):
            answer = self._open().ask("POST", "rest/api/3/search/jql", body=asked)
            at = answer.at if at is None else at
            for ticket in answer.body["issues"]:
                found[str(ticket["key"])] = ticket
            token = answer.body.get("nextPageToken")
            if answer.body.get("isLast") or not token:
                return list(found.values()), at
            if token == asked.get("nextPageToken"):
                break
            asked["nextPageToken"] = token
        raise ServiceDown(service=jira.NAME, why="its search does not end")

    def _whole(self, ticket: Ticket) -> Ticket:
        """Return a ticket with its newest comments, of which a search tells only some."""
        comment = ticket["fields"].get("comment") or {}
        shown = comment.get("comments") or []
        if int(comment.get("total") or 0) <= len(shown):
            return ticket
        address = f"rest/api/3/issue/{ticket['key']}/comment"
        newest = self._open().get(address, {"orderBy": "-created", "maxResults": str(MOST_COMMENTS)}).body["comments"]
        return {**ticket, "fields": {**ticket["fields"], "comment": {"comments": newest}}}

    def _known(self) -> dict[str, Known]:
        """Return what the tickets were like, also those whose events were made just before a kill."""
        kept = self._kit.state.get("known_issues") or {}
        if isinstance(kept, list):
            kept = {str(key): {} for key in kept}
        known: dict[str, Known] = {
            key: entry if isinstance(entry, dict) else _noted_elsewhere(entry) for key, entry in kept.items()
        }
        for key, made in (self._kit.state.get("making") or {}).items():
            if self._kit.is_known(str(made["event"])):
                known[key] = made["then"]
        return known

    def _judged(self, ticket: Ticket, before: Known | None, me: str) -> tuple[Event | None, Known]:
        """Return the event that follows, if any, and what to remember of the ticket."""
        if not _KEY.match(ticket["key"]):
            raise ValueError(f"{ticket['key']!r} is not a ticket key")
        fields = ticket["fields"]
        status = str(fields["status"]["name"])
        comments = sorted((fields.get("comment") or {}).get("comments") or [], key=lambda comment: int(comment["id"]))
        latest = int(comments[-1]["id"]) if comments else 0
        then = {"status": status, "updated": fields["updated"], "comment": max(latest, _comment(before))}
        if before is None:
            return self._event(ticket, "assigned", None, []), then
        new = [
            comment for comment in comments if self._is_new(comment, before) and not _is_own(comment.get("author"), me)
        ]
        was = before.get("status") or _status_at(ticket, before.get("updated"))
        moves = _moves(ticket)
        if was is not None and was != status and not (moves and _is_own(moves[-1]["author"], me)):
            within = moves[-1]["id"] if moves and _is_same_second(before, then) else ""
            return self._event(ticket, "updated", str(was), new, within), then
        within = new[-1]["id"] if new and _is_same_second(before, then) else ""
        return (self._event(ticket, "commented", status, new, within) if new else None), then

    def _is_new(self, comment: Mapping[str, Any], before: Known) -> bool:
        """Return whether it came after the last look; of a ticket that another sentinel knew, by its time."""
        if "comment" in before:
            return int(comment["id"]) > _comment(before)
        began = str(self._kit.state.get("last_check") or "")
        return datetime.fromtimestamp(_seconds(comment["created"]), UTC).strftime(CURSOR) >= began

    def _event(
        self, ticket: Ticket, what: str, before: str | None, comments: Sequence[Mapping[str, Any]], within: str = ""
    ) -> Event:
        """Return the event of what happened; `within` is Jira's id of it, if its second has an event already."""
        fields, key = ticket["fields"], str(ticket["key"])
        changed = datetime.fromtimestamp(_seconds(fields["updated"]), UTC)
        payload = {
            "headline": one_line(f"{key} {fields['summary']}", LONGEST_HEADLINE),
            "ticket_key": key,
            "summary": shortened(str(fields["summary"])),
            "status": str(fields["status"]["name"]),
            "previous_status": before,
            "url": f"{self._site}/browse/{key}",
            "priority": (fields.get("priority") or {}).get("name"),
            "labels": [str(label) for label in fields.get("labels") or []],
            "description": shortened(plain(fields.get("description"))),
            "updated_at": fields["updated"],
            "comments": [
                {
                    "author": _name(comment.get("author")),
                    "text": shortened(plain(comment.get("body"))),
                    "at": comment["created"],
                }
                for comment in comments[-10:]
            ],
        }
        return Event(
            id=f"evt-jira-{key}-{changed:%Y%m%d%H%M%S}{within and '-'}{within}",
            type=f"jira.ticket.{what}",
            source=SOURCE,
            payload=payload,
            priority="low" if what == "commented" else "normal",
            created_at=stamp(self._kit.clock()),
        )

    def _report_misshapen(self, ticket: Any, error: Exception) -> None:
        name = one_line(ticket.get("key") if isinstance(ticket, dict) else ticket, 60)
        if name not in self._misshapen:
            self._misshapen.add(name)
            self._kit.tell(f"jira: skipped {name}, which has an unknown format: {one_line(repr(error), 200)}")


def _noted_elsewhere(entry: object) -> Known:
    """Return what another sentinel has noted of a ticket: when it was changed, or its status."""
    return {"updated": entry} if _TIME.match(str(entry)) else {"status": entry}


def _comment(before: Known | None) -> int:
    return int((before or {}).get("comment") or 0)


def _is_same_second(before: Known, then: Known) -> bool:
    """Return whether a ticket was looked at within the second of its last change."""
    try:
        return int(_seconds(str(before.get("updated")))) == int(_seconds(str(then["updated"])))
    except ValueError:
        return False


def _status_at(ticket: Ticket, noted: object) -> str | None:
    """Return the status that a ticket had at a moment, if it was moved since; None when the moment cannot be read."""
    try:
        at = _seconds(str(noted))
    except ValueError:
        return None
    since = [move for move in _moves(ticket) if _seconds(move["created"]) > at]
    return str(next(_moved(since[0]))["fromString"]) if since else None


def _moves(ticket: Ticket) -> list[Mapping[str, Any]]:
    """Return the changes of a ticket's status, the oldest first."""
    histories = (ticket.get("changelog") or {}).get("histories") or []
    moves = [move for move in reversed(histories) if any(_moved(move))]  # Jira tells the newest first
    return sorted(moves, key=lambda move: _seconds(move["created"]))


def _moved(change: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (item for item in change.get("items") or () if item.get("field") == "status")


def _is_own(author: Any, me: str) -> bool:
    """Return whether we are this, or a program is."""
    return isinstance(author, dict) and (author.get("accountId") == me or author.get("accountType") == "app")


def _name(author: Any) -> str:
    return str(author.get("displayName") or author.get("accountId")) if isinstance(author, dict) else "?"


def _seconds(text: str) -> float:
    """Return a moment as Jira writes it, with any zone, as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
