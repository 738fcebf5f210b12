"""GitHub: the token, the address, and who we are there."""

from __future__ import annotations

from collections.abc import Mapping

from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.words import count
from kingdom.court.connections.base import Needed, ServiceRefused
from kingdom.court.connections.web import QUICK, Deadlines, Web

NAME = "GitHub"
NEEDED_SCOPES = ("notifications", "repo")
"""Either reads notifications; only classic tokens have scopes, and only they may read notifications."""


class GitHubService:
    serves = "the sentinel reads notifications with it: reviews asked for, mentions, assignments"
    needs = (Needed("GH_TOKEN", "token (ghp_…)", also=("GITHUB_TOKEN",)),)
    guide = """\
On GitHub: Settings, Developer settings, Personal access tokens, Tokens (classic), Generate new token.
Scopes: `notifications`, and `repo` if private repositories are to be seen. Fine-grained tokens cannot read
notifications. Best is an account of its own for the kingdom: what its token writes never comes back as work."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        web = connect(places, secrets, QUICK)
        try:
            me = web.get("user")
            scopes = me.headers.get("x-oauth-scopes")
            unread = web.get("notifications", {"per_page": "50"})
        except ServiceRefused as error:
            if error.facts.get("status") == 403:
                raise ServiceRefused(service=NAME, why=f"{error.facts['why']}; {_scopes_missing()}") from None
            raise
        finally:
            web.close()
        held = [scope.strip() for scope in (scopes or "").split(",") if scope.strip()]
        if scopes is not None and not set(held) & set(NEEDED_SCOPES):
            raise ServiceRefused(service=NAME, why=f"the token has the scopes {scopes or 'none'}; {_scopes_missing()}")
        number = len(unread.body)
        waiting = f"{number}+ unread notifications" if unread.next_page() else count(number, "unread notification")
        return f"you are {me.body['login']}, {waiting}, scopes {', '.join(held) or 'not told'}"


def _scopes_missing() -> str:
    return "it needs `notifications` (and `repo` for private repositories)"


def token(secrets: Mapping[str, str]) -> str:
    return GitHubService.needs[0].value(secrets)


def connect(places: Places, secrets: Mapping[str, str], deadlines: Deadlines | None = None) -> Web:
    """Return the way to GitHub, at the address that sentinel.yaml names. Nothing is asked yet."""
    address = str(config.for_looking(places, "sentinel")[0]["polling"]["github"]["base_url"])
    headers = {
        "Authorization": f"Bearer {token(secrets)}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    return Web(NAME, address, headers, deadlines=deadlines)
