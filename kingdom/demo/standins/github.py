"""GitHub, as far as its notifications go: kept, read, marked, paged, and asked for only when they have changed.

What stands behind them, too: who opened it, comments, comments on lines, reviews, and whose review was asked.

Its clock, its limits and its faults are the test's to set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kingdom.demo.standins.faults import FaultyStandIn
from kingdom.demo.standins.server import Answer, HttpRequest, answer_json

TOKEN = "ghp_standin_0123456789abcdefghijklmnopqr"
PER_PAGE, MOST_PER_PAGE = 50, 50
POLL_INTERVAL = 60
REPOSITORY_LINKS = (
    "archive assignees blobs branches collaborators comments commits compare contents contributors deployments "
    "downloads events forks git_commits git_refs git_tags hooks issue_comment issue_events issues keys labels "
    "languages merges milestones notifications pulls releases stargazers statuses subscribers subscription tags "
    "teams trees"
)
ISSUE_EVENTS = {"review_requested": ("requested_reviewer", "review_requester"), "assign": ("assignee", "assigner")}
"""Reasons that stand in an issue's history, with whom they are about, and who caused them."""
KINDS = ("PullRequest", "Issue")
OPENED_BEFORE = 86400.0
USER_LINKS = "followers following gists starred subscriptions organizations repos events received_events"


class GitHub(FaultyStandIn):
    """One account's view of GitHub."""

    def __init__(self, port: int = 0, journal: Path | None = None) -> None:
        super().__init__(port, journal)
        self.login = "kingdom-bot"
        self.token = TOKEN
        self.scopes = "notifications, repo"
        self.poll_interval = POLL_INTERVAL
        #: How many requests are left before the primary limit; None: any number.
        self.remaining: int | None = None
        self.reset_at = 0.0
        self.threads: dict[str, dict[str, Any]] = {}
        self.comments: dict[int, dict[str, Any]] = {}
        #: What else stands in a pull request: comments on lines, reviews, and what was done, by a number of their own.
        self.remarks: dict[int, dict[str, Any]] = {}
        self.reviews: dict[int, dict[str, Any]] = {}
        self.issue_events: dict[int, dict[str, Any]] = {}
        #: Who opened an issue or a pull request, and when, if not "dana" a day before.
        self.opened: dict[int, tuple[str, float]] = {}
        #: What its writer says of it, and into which branch it wants to go, if not nothing and "main".
        self.described: dict[int, tuple[str, str]] = {}
        kinds = {"comment": self.comments, "remark": self.remarks, "review": self.reviews}
        kinds["issue_event"] = self.issue_events
        for kind, name, one in self.noted():
            if kind == "thread":
                self.threads[name] = one
            else:
                kinds[kind][int(name)] = one

    def notify(
        self,
        number: int = 1,
        reason: str = "review_requested",
        *,
        repo: str = "acme/shop",
        kind: str = "PullRequest",
        title: str = "Make it faster",
        at: float | None = None,
        comment: Mapping[str, Any] | None = None,
    ) -> str:
        """Let something happen to a pull request or an issue, and return the id of its notification."""
        with self.lock:
            of_subject = (thread for thread in self.threads.values() if _is_about(thread, repo, kind, number))
            known = next(of_subject, None)
            name = known["id"] if known else str(1000 + len(self.threads))
            moment = stamp(self.now() if at is None else at)
            path = "pulls" if kind == "PullRequest" else "issues"
            url = f"{self.address}/repos/{repo}/{path}/{number}"
            latest = f"{self.address}/repos/{repo}/issues/comments/{comment['id']}" if comment else url
            self.threads[name] = {
                "id": name,
                "repository": self._repository(repo),
                "subject": {"title": title, "url": url, "latest_comment_url": latest, "type": kind},
                "reason": reason,
                "unread": True,
                "updated_at": moment,
                "last_read_at": known["last_read_at"] if known else None,
                "url": f"{self.address}/notifications/threads/{name}",
                "subscription_url": f"{self.address}/notifications/threads/{name}/subscription",
            }
            self.note("thread", name, self.threads[name])
            if comment is None and reason in ISSUE_EVENTS:
                self._do(number, reason, repo, moment)
            return name

    def review(self, number: int, text: str, by: str, *, repo: str = "acme/shop", on_line: bool = False) -> None:
        """Let somebody review a pull request, or write on a line of it; its notification follows."""
        with self.lock:
            make = self._remark if on_line else self._review
            make(number, text, self._user(by), repo)
            self.notify(number, "comment", repo=repo)

    def comment(
        self,
        number: int,
        text: str,
        by: str,
        *,
        reason: str = "comment",
        repo: str = "acme/shop",
        kind: str = "PullRequest",
        is_bot: bool = False,
        at: float | None = None,
    ) -> dict[str, Any]:
        """Let somebody write under a pull request or an issue; its notification follows. Return the comment."""
        with self.lock:
            moment = self.now() if at is None else at
            made = self._comment(number, text, self._user(by, is_bot), repo, moment)
            self.notify(number, reason, repo=repo, kind=kind, at=moment, comment=made)
            return made

    def unread(self) -> list[str]:
        return [name for name, thread in self.threads.items() if thread["unread"]]

    def served(self, request: HttpRequest) -> Answer:
        answer = self._limited(request) or self._answered(request)
        headers = {"x-github-media-type": "github.v3; format=json"}
        if self.remaining is not None:
            headers |= {"x-ratelimit-remaining": str(self.remaining), "x-ratelimit-reset": str(int(self.reset_at))}
        return Answer(answer.status, answer.body, {**headers, **answer.headers})

    def _limited(self, request: HttpRequest) -> Answer | None:
        if self.remaining is not None and self.now() >= self.reset_at > 0:
            self.remaining = None
        if self.remaining is None:
            return None
        if self.remaining == 0:
            return answer_json({"message": "API rate limit exceeded", "documentation_url": ""}, 403)
        self.remaining -= 1
        return None

    def _answered(self, request: HttpRequest) -> Answer:
        if request.headers.get("authorization") not in (f"Bearer {self.token}", f"token {self.token}"):
            return answer_json({"message": "Bad credentials", "documentation_url": "", "status": "401"}, 401)
        parts = request.path.strip("/").split("/")
        match (request.method, *parts):
            case ("GET", "user"):
                return answer_json(self._user(self.login), headers={"x-oauth-scopes": self.scopes})
            case ("GET", "notifications"):
                return self._notifications(request)
            case ("GET", "notifications", "threads", name) if name in self.threads:
                return answer_json(self.threads[name])
            case ("PATCH", "notifications", "threads", name) if name in self.threads:
                self.threads[name] |= {"unread": False, "last_read_at": stamp(self.now())}
                self.note("thread", name, self.threads[name])
                return Answer(205)
            case ("GET", "repos", owner, name, "issues", "comments", number) if int(number) in self.comments:
                return answer_json(self.comments[int(number)])
            case ("GET", "repos", owner, name, "issues", number, "comments"):
                url = f"{self.address}/repos/{owner}/{name}/issues/{number}"
                found = [comment for comment in self.comments.values() if comment["issue_url"] == url]
                return self._page(request, found)
            case ("GET", "repos", owner, name, "issues", number):
                return answer_json(self._issue(f"{owner}/{name}", int(number)))
            case ("GET", "repos", owner, name, "issues", number, "events"):
                url = f"{self.address}/repos/{owner}/{name}/issues/{number}"
                found = [event for event in self.issue_events.values() if event["url"].startswith(f"{url}#")]
                return self._page(request, found)
            case ("GET", "repos", owner, name, "pulls", number):
                return answer_json(self._pull(f"{owner}/{name}", int(number)))
            case ("GET", "repos", owner, name, "pulls", number, "comments" | "reviews" as kind):
                url = f"{self.address}/repos/{owner}/{name}/pulls/{number}"
                every = self.remarks if kind == "comments" else self.reviews
                return self._page(request, [entry for entry in every.values() if entry["pull_request_url"] == url])
            case ("POST", "repos", owner, name, "issues", number, "comments"):
                text, me = request.json()["body"], self._user(self.login)
                return answer_json(self._comment(int(number), text, me, f"{owner}/{name}", self.now()), 201)
        return answer_json({"message": "Not Found", "documentation_url": "", "status": "404"}, 404)

    def _notifications(self, request: HttpRequest) -> Answer:
        if not {"notifications", "repo"} & {scope.strip() for scope in self.scopes.split(",")}:
            return answer_json({"message": "Missing the 'notifications' scope.", "documentation_url": ""}, 403)
        asked = {name: values[-1] for name, values in request.query.items()}
        since, before = asked.get("since", ""), asked.get("before", "9")
        found = [thread for thread in self.threads.values() if thread["unread"] or asked.get("all") == "true"]
        found = [thread for thread in found if since <= thread["updated_at"] < before]
        found.sort(key=lambda thread: (thread["updated_at"], thread["id"]), reverse=True)
        size, page = min(int(asked.get("per_page", PER_PAGE)), MOST_PER_PAGE), int(asked.get("page", 1))
        shown = found[(page - 1) * size : page * size]
        tag = f'W/"{sha256(json.dumps(shown).encode()).hexdigest()[:32]}"'
        headers = {"etag": tag, "x-poll-interval": str(self.poll_interval)}
        if request.headers.get("if-none-match") == tag:
            return Answer(304, headers=headers)
        if page * size < len(found):
            query = "&".join(f"{name}={value}" for name, value in {**asked, "page": str(page + 1)}.items())
            headers["link"] = f'<{self.address}/notifications?{query}>; rel="next"'
        return answer_json(shown, headers=headers)

    def _page(self, request: HttpRequest, entries: list[dict[str, Any]]) -> Answer:
        """Answer with one page of entries, the oldest first; comments alone can be asked for since a moment."""
        asked = {name: values[-1] for name, values in request.query.items()}
        found = [entry for entry in entries if entry.get("updated_at", "9") >= asked.get("since", "")]
        size, page = min(int(asked.get("per_page", 30)), 100), int(asked.get("page", 1))
        headers = {}
        if page * size < len(found):
            query = urlencode({**asked, "page": str(page + 1)})
            headers["link"] = f'<{self.address}{request.path}?{query}>; rel="next"'
        return answer_json(found[(page - 1) * size : page * size], headers=headers)

    def _issue(self, repo: str, number: int) -> dict[str, Any]:
        by, at = self.opened.get(number, ("dana", self.now() - OPENED_BEFORE))
        url = f"{self.address}/repos/{repo}/issues/{number}"
        return {
            "id": 9000 + number,
            "node_id": f"I_{number}",
            "number": number,
            "url": url,
            "repository_url": f"{self.address}/repos/{repo}",
            "html_url": f"https://github.com/{repo}/issues/{number}",
            **{f"{kind}_url": f"{url}/{kind}" for kind in ("comments", "events")},
            "labels_url": f"{url}/labels{{/name}}",
            "title": self._title(repo, number),
            "body": self.described.get(number, (None, ""))[0],
            "user": self._user(by),
            "state": "open",
            "locked": False,
            "labels": [],
            "assignee": None,
            "milestone": None,
            "comments": 0,
            "closed_at": None,
            "created_at": stamp(at),
            "updated_at": stamp(at),
        }

    def _pull(self, repo: str, number: int) -> dict[str, Any]:
        """Return a pull request: what its issue says, and the branch it wants to go into."""
        issue = self._issue(repo, number)
        left_out = ("repository_url", "labels_url", "events_url")
        branch = self.described.get(number, ("", "main"))[1]
        return {
            **{name: part for name, part in issue.items() if name not in left_out},
            "node_id": f"PR_{number}",
            "url": f"{self.address}/repos/{repo}/pulls/{number}",
            "issue_url": issue["url"],
            "html_url": f"https://github.com/{repo}/pull/{number}",
            "base": {"label": f"{repo.partition('/')[0]}:{branch}", "ref": branch, "sha": "0" * 40},
            "draft": False,
            "merged": False,
        }

    def _title(self, repo: str, number: int) -> str:
        every = self.threads.values()
        threads = (thread for thread in every if any(_is_about(thread, repo, kind, number) for kind in KINDS))
        return next((str(thread["subject"]["title"]) for thread in threads), "Make it faster")

    def _do(self, number: int, reason: str, repo: str, moment: str) -> None:
        """Note in an issue's history that "dana" has asked something of us."""
        name, (asked, asker) = 7000 + len(self.issue_events), ISSUE_EVENTS[reason]
        self.issue_events[name] = {
            "id": name,
            "node_id": f"E_{name}",
            "url": f"{self.address}/repos/{repo}/issues/{number}#{name}",
            "actor": self._user("dana"),
            "event": "review_requested" if reason == "review_requested" else "assigned",
            "commit_id": None,
            "commit_url": None,
            "created_at": moment,
            "performed_via_github_app": None,
            asked: self._user(self.login),
            asker: self._user("dana"),
        }
        self.note("issue_event", str(name), self.issue_events[name])

    def _review(self, number: int, text: str, user: dict[str, Any], repo: str) -> None:
        name, url = 6000 + len(self.reviews), f"{self.address}/repos/{repo}/pulls/{number}"
        self.reviews[name] = {
            "id": name,
            "node_id": f"R_{name}",
            "user": user,
            "body": text,
            "state": "COMMENTED",
            "commit_id": None,
            "html_url": f"https://github.com/{repo}/pull/{number}#pullrequestreview-{name}",
            "pull_request_url": url,
            "_links": {"pull_request": {"href": url}},
            "submitted_at": stamp(self.now()),
            "author_association": "MEMBER",
        }
        self.note("review", str(name), self.reviews[name])

    def _remark(self, number: int, text: str, user: dict[str, Any], repo: str) -> None:
        name, url = 8000 + len(self.remarks), f"{self.address}/repos/{repo}/pulls/{number}"
        moment, commit = stamp(self.now()), "0" * 40
        self.remarks[name] = {
            "id": name,
            "node_id": f"C_{name}",
            "url": f"{self.address}/repos/{repo}/pulls/comments/{name}",
            "pull_request_review_id": None,
            "diff_hunk": "@@ -1 +1 @@",
            "path": "main.c",
            "commit_id": commit,
            "original_commit_id": commit,
            "user": user,
            "body": text,
            "created_at": moment,
            "updated_at": moment,
            "html_url": f"https://github.com/{repo}/pull/{number}#discussion_r{name}",
            "pull_request_url": url,
            "author_association": "MEMBER",
            "_links": {"pull_request": {"href": url}},
        }
        self.note("remark", str(name), self.remarks[name])

    def _comment(self, number: int, text: str, user: dict[str, Any], repo: str, at: float) -> dict[str, Any]:
        name, moment = 5000 + len(self.comments), stamp(at)
        made = {
            "id": name,
            "node_id": f"IC_{name}",
            "url": f"{self.address}/repos/{repo}/issues/comments/{name}",
            "html_url": f"https://github.com/{repo}/issues/{number}#issuecomment-{name}",
            "issue_url": f"{self.address}/repos/{repo}/issues/{number}",
            "body": text,
            "user": user,
            "created_at": moment,
            "updated_at": moment,
            "author_association": "MEMBER",
            "performed_via_github_app": None,
        }
        self.comments[name] = made
        self.note("comment", str(name), made)
        return made

    def _user(self, login: str, is_bot: bool = False) -> dict[str, Any]:
        base = f"{self.address}/users/{login}"
        number = int(sha256(login.encode()).hexdigest()[:6], 16)
        return {
            "login": login,
            "id": number,
            "node_id": f"U_{number}",
            "avatar_url": f"https://avatars.githubusercontent.com/u/{number}",
            "gravatar_id": "",
            "url": base,
            "html_url": f"https://github.com/{login}",
            **{f"{link}_url": f"{base}/{link}" for link in USER_LINKS.split()},
            "type": "Bot" if is_bot else "User",
            "site_admin": False,
        }

    def _repository(self, full_name: str) -> dict[str, Any]:
        owner, _, name = full_name.partition("/")
        base = f"{self.address}/repos/{full_name}"
        number = int(sha256(full_name.encode()).hexdigest()[:6], 16)
        return {
            "id": number,
            "node_id": f"R_{number}",
            "name": name,
            "full_name": full_name,
            "owner": self._user(owner),
            "private": False,
            "html_url": f"https://github.com/{full_name}",
            "description": None,
            "fork": False,
            "url": base,
            "hooks_url": f"{base}/hooks",
            **{f"{link}_url": f"{base}/{link}" for link in REPOSITORY_LINKS.split()},
        }


def stamp(moment: float) -> str:
    """Return a moment as GitHub writes it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_about(thread: Mapping[str, Any], repo: str, kind: str, number: int) -> bool:
    subject = thread["subject"]
    about = thread["repository"]["full_name"], subject["type"], str(subject["url"]).rpartition("/")[2]
    return about == (repo, kind, str(number))
