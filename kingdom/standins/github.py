"""GitHub, as far as its notifications go: kept, read, marked, paged, and asked for only when they have changed.

Its clock, its limits and its faults are the test's to set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from kingdom.standins.faults import FaultyStandIn
from kingdom.standins.server import Answer, Request, answer_json

TOKEN = "ghp_standin_0123456789abcdefghijklmnopqr"
PER_PAGE, MOST_PER_PAGE = 50, 50
POLL_INTERVAL = 60
REPOSITORY_LINKS = (
    "archive assignees blobs branches collaborators comments commits compare contents contributors deployments "
    "downloads events forks git_commits git_refs git_tags hooks issue_comment issue_events issues keys labels "
    "languages merges milestones notifications pulls releases stargazers statuses subscribers subscription tags "
    "teams trees"
)
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
        for kind, name, one in self.noted():
            if kind == "thread":
                self.threads[name] = one
            else:
                self.comments[int(name)] = one

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
            of_subject = (one for one in self.threads.values() if _is_about(one, repo, kind, number))
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
            return name

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
        return [name for name, one in self.threads.items() if one["unread"]]

    def served(self, request: Request) -> Answer:
        answer = self._limited(request) or self._answered(request)
        told = {"x-github-media-type": "github.v3; format=json"}
        if self.remaining is not None:
            told |= {"x-ratelimit-remaining": str(self.remaining), "x-ratelimit-reset": str(int(self.reset_at))}
        return Answer(answer.status, answer.body, {**told, **answer.headers})

    def _limited(self, request: Request) -> Answer | None:
        if self.remaining is not None and self.now() >= self.reset_at > 0:
            self.remaining = None
        if self.remaining is None:
            return None
        if self.remaining == 0:
            return answer_json({"message": "API rate limit exceeded", "documentation_url": ""}, 403)
        self.remaining -= 1
        return None

    def _answered(self, request: Request) -> Answer:
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
                return self._comments(request, f"{owner}/{name}", int(number))
            case ("POST", "repos", owner, name, "issues", number, "comments"):
                text, me = request.json()["body"], self._user(self.login)
                return answer_json(self._comment(int(number), text, me, f"{owner}/{name}", self.now()), 201)
        return answer_json({"message": "Not Found", "documentation_url": "", "status": "404"}, 404)

    def _notifications(self, request: Request) -> Answer:
        if not {"notifications", "repo"} & {scope.strip() for scope in self.scopes.split(",")}:
            return answer_json({"message": "Missing the 'notifications' scope.", "documentation_url": ""}, 403)
        asked = {name: values[-1] for name, values in request.query.items()}
        since, before = asked.get("since", ""), asked.get("before", "9")
        found = [one for one in self.threads.values() if one["unread"] or asked.get("all") == "true"]
        found = [one for one in found if since <= one["updated_at"] < before]
        found.sort(key=lambda one: (one["updated_at"], one["id"]), reverse=True)
        size, page = min(int(asked.get("per_page", PER_PAGE)), MOST_PER_PAGE), int(asked.get("page", 1))
        shown = found[(page - 1) * size : page * size]
        tag = f'W/"{sha256(json.dumps(shown).encode()).hexdigest()[:32]}"'
        told = {"etag": tag, "x-poll-interval": str(self.poll_interval)}
        if request.headers.get("if-none-match") == tag:
            return Answer(304, headers=told)
        if page * size < len(found):
            query = "&".join(f"{name}={value}" for name, value in {**asked, "page": str(page + 1)}.items())
            told["link"] = f'<{self.address}/notifications?{query}>; rel="next"'
        return answer_json(shown, headers=told)

    def _comments(self, request: Request, repo: str, number: int) -> Answer:
        since = request.query.get("since", [""])[-1]
        url = f"{self.address}/repos/{repo}/issues/{number}"
        found = [one for one in self.comments.values() if one["issue_url"] == url and one["updated_at"] >= since]
        return answer_json(found)

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
