"""Jira, as far as finding tickets goes: by a window of time, page by page, with their changes and comments.

Its clock and its faults are the test's to set.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from kingdom.demo.standins.faults import FaultyStandIn
from kingdom.demo.standins.server import Answer, HttpRequest, answer_json

CLOUD, SITE = "1f2a3b4c-0000-4000-8000-000000000000", "https://acme.atlassian.net"
"""Where a token with scopes is taken, and where people find the tickets then."""
EMAIL, TOKEN = "kingdom@example.com", "ATATT-standin-0123456789"
ZONE = timezone(timedelta(hours=9))
"""The account's; what it answers is written in it."""
MOST_PER_PAGE = 100
COMMENTS_SHOWN = 20
"""Of a ticket that is found; all of them are told when its comments are asked for."""
UNITS = {"m": 60, "h": 3600, "d": 86400}


class Jira(FaultyStandIn):
    """One account's view of Jira."""

    def __init__(self, port: int = 0, journal: Path | None = None) -> None:
        super().__init__(port, journal)
        self.me = person("kingdom-bot")
        self.page_size = MOST_PER_PAGE
        #: Whether our token is one with scopes, which works at another address alone.
        self.has_scopes = False
        self.tickets: dict[str, dict[str, Any]] = {}
        for _, name, one in self.noted():
            self.tickets[name] = one
        self._count = 0

    def ticket(
        self, key: str, summary: str = "Make it faster", *, text: str = "It is slow.", at: float | None = None
    ) -> None:
        """Let somebody open a ticket that our account may see."""
        moment = stamp(self.now() if at is None else at)
        with self.lock:
            self.tickets[key] = {
                "id": str(10000 + len(self.tickets)),
                "key": key,
                "self": f"{self.address}/rest/api/3/issue/{10000 + len(self.tickets)}",
                "fields": {
                    "summary": summary,
                    "status": self._status("To Do"),
                    "priority": {"name": "High", "id": "2", "self": f"{self.address}/rest/api/3/priority/2"},
                    "labels": ["speed"],
                    "description": document(text),
                    "created": moment,
                    "updated": moment,
                    "comment": {"comments": []},
                },
                "changelog": {"histories": []},
            }
            self.note("ticket", key, self.tickets[key])

    def move(self, key: str, status: str, by: Mapping[str, Any] | None = None, *, at: float | None = None) -> None:
        """Let somebody (else than we) move a ticket to another status."""
        with self.lock:
            fields = self.tickets[key]["fields"]
            change = {"field": "status", "fieldtype": "jira", "fieldId": "status"}
            change |= {"fromString": fields["status"]["name"], "toString": status, "from": "1", "to": "2"}
            fields["status"] = self._status(status)
            self._change(key, change, by, at)

    def edit(self, key: str, by: Mapping[str, Any] | None = None, *, at: float | None = None) -> None:
        """Let somebody change something else about a ticket."""
        with self.lock:
            self.tickets[key]["fields"]["labels"].append("edited")
            change = {"field": "labels", "fieldtype": "jira", "fieldId": "labels"}
            self._change(key, {**change, "fromString": "", "toString": "edited", "from": "", "to": ""}, by, at)

    def comment(self, key: str, text: str, by: Mapping[str, Any] | None = None, *, at: float | None = None) -> None:
        """Let somebody (else than we) write under a ticket."""
        with self.lock:
            moment = stamp(self.now() if at is None else at)
            self._count += 1
            fields = self.tickets[key]["fields"]
            author = dict(by or person("dana"))
            said = {"id": str(20000 + self._count + len(fields["comment"]["comments"])), "author": author}
            said |= {"updateAuthor": author, "body": document(text), "created": moment, "updated": moment}
            said["self"] = f"{self.address}/rest/api/3/issue/{self.tickets[key]['id']}/comment/{said['id']}"
            fields["comment"]["comments"].append(said)
            fields["updated"] = moment
            self.note("ticket", key, self.tickets[key])

    def served(self, request: HttpRequest) -> Answer:
        basic = base64.b64encode(f"{EMAIL}:{TOKEN}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return answer_json({"errorMessages": ["Client must be authenticated to access this resource."]}, 401)
        parts = request.path.strip("/").split("/")
        is_gateway = parts[:3] == ["ex", "jira", CLOUD]
        if is_gateway != self.has_scopes:
            return answer_json({"code": 401, "message": "Unauthorized; scope does not match"}, 401)
        match (request.method, *(parts[3:] if is_gateway else parts)):
            case ("GET", "rest", "api", "3", "myself"):
                return answer_json(self.me)
            case ("GET", "rest", "api", "3", "serverInfo"):
                return answer_json({"baseUrl": SITE, "version": "1001.0.0-SNAPSHOT", "deploymentType": "Cloud"})
            case ("POST", "rest", "api", "3", "search", "jql"):
                return self._found(request.json())
            case ("GET", "rest", "api", "3", "issue", key, "comment") if key in self.tickets:
                return self._comments(request, key)
        return answer_json({"errorMessages": ["Not found"], "errors": {}}, 404)

    def _found(self, asked: dict[str, Any]) -> Answer:
        """Answer a search. Times in a query are minutes back from now, by the service's own clock."""
        jql = str(asked["jql"])
        window = re.search(r"updated >= -(\d+)([mhd])", jql)
        if "ORDER BY" not in jql and window is None and "=" not in jql:
            return answer_json({"errorMessages": ["Unbounded JQL queries are not allowed here."], "errors": {}}, 400)
        since = self.now() - int(window[1]) * UNITS[window[2]] if window else 0.0
        # A query knows minutes alone.
        keys = sorted(key for key, ticket in self.tickets.items() if _updated(ticket) >= since // 60 * 60)
        begin = int(str(asked.get("nextPageToken") or "0"))
        size = min(int(asked.get("maxResults") or 50), self.page_size)
        shown = [self._shown(self.tickets[key], asked) for key in keys[begin : begin + size]]
        more = begin + size < len(keys)
        answer = {"issues": shown, "isLast": not more}
        return answer_json(answer | ({"nextPageToken": str(begin + size)} if more else {}))

    def _shown(self, ticket: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        wanted = asked.get("fields") or ["id"]
        fields = {name: value for name, value in ticket["fields"].items() if name in wanted or "*all" in wanted}
        if "comment" in fields:
            every = fields["comment"]["comments"]
            first = every[:COMMENTS_SHOWN]
            bounds = {"total": len(every), "startAt": 0, "maxResults": len(first)}
            fields["comment"] = {"self": f"{ticket['self']}/comment", **bounds, "comments": first}
        shown = {name: ticket[name] for name in ("id", "key", "self")} | {"fields": fields}
        if "changelog" in str(asked.get("expand") or ""):
            histories = list(reversed(ticket["changelog"]["histories"]))
            shown["changelog"] = {"startAt": 0, "maxResults": len(histories), "total": len(histories)}
            shown["changelog"]["histories"] = histories
        return shown

    def _comments(self, request: HttpRequest, key: str) -> Answer:
        every = list(self.tickets[key]["fields"]["comment"]["comments"])
        if request.query.get("orderBy", [""])[-1] == "-created":
            every.reverse()
        begin = int(request.query.get("startAt", ["0"])[-1])
        size = int(request.query.get("maxResults", ["100"])[-1])
        shown = every[begin : begin + size]
        return answer_json({"startAt": begin, "maxResults": size, "total": len(every), "comments": shown})

    def _change(self, key: str, item: dict[str, Any], by: Mapping[str, Any] | None, at: float | None) -> None:
        moment = stamp(self.now() if at is None else at)
        self._count += 1
        ticket = self.tickets[key]
        history = {"id": str(30000 + self._count), "author": dict(by or person("dana")), "created": moment}
        ticket["changelog"]["histories"].append({**history, "items": [item]})
        ticket["fields"]["updated"] = moment
        self.note("ticket", key, ticket)

    def _status(self, name: str) -> dict[str, Any]:
        number = str(sum(map(ord, name)))
        return {"name": name, "id": number, "self": f"{self.address}/rest/api/3/status/{number}", "description": ""}


def person(name: str, *, is_app: bool = False) -> dict[str, Any]:
    """Return a user as Jira tells of one."""
    user = {"accountId": f"712020:{name}", "displayName": name, "active": True, "timeZone": "Asia/Seoul"}
    return {**user, "accountType": "app" if is_app else "atlassian"}


def document(text: str) -> dict[str, Any]:
    """Return a text as Jira keeps it, a paragraph for each line."""
    lines = [
        {"type": "paragraph", "content": [{"type": "text", "text": line}] if line else []} for line in text.split("\n")
    ]
    return {"type": "doc", "version": 1, "content": lines}


def stamp(moment: float) -> str:
    """Return a moment as Jira writes it, in the account's zone."""
    there = datetime.fromtimestamp(moment, UTC).astimezone(ZONE)
    return f"{there:%Y-%m-%dT%H:%M:%S}.{there.microsecond // 1000:03d}{there:%z}"


def _updated(ticket: Mapping[str, Any]) -> float:
    return datetime.strptime(ticket["fields"]["updated"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
