"""Jira: the address, the account and its token, and who we are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kingdom.base import loopback
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.court.connections.base import Needed, ServiceRefused
from kingdom.court.connections.web import QUICK, Deadlines, Web

NAME = "Jira"
GATEWAY = "/ex/jira/"
"""Part of the only address that takes a token with scopes; people find tickets at another one."""
URL, EMAIL, TOKEN = NEEDS = (
    Needed("JIRA_URL", "address (https://your-site.atlassian.net, or as above)", is_secret=False),
    Needed("JIRA_USER_EMAIL", "e-mail address of the account", is_secret=False),
    Needed("JIRA_API_TOKEN", "API token"),
)


class JiraService:
    serves = "the sentinel reads tickets with it: assigned ones, changes of status, comments"
    needs = NEEDS
    guide = """\
On id.atlassian.com: Security, API tokens, Create API token. Its address is your site's, https://your-site.atlassian.net.
Better is a token with scopes, `read:jira-work` and `read:jira-user`, which works at another address alone:
https://api.atlassian.com/ex/jira/CLOUD-ID (https://your-site.atlassian.net/_edge/tenant_info shows the CLOUD-ID).
The account must be allowed to browse the projects. Which tickets are looked at is polling.jira.scope.jql_base
in config/sentinel.yaml. Best is an account of its own for the kingdom: what it writes never comes back as work."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        web = connect(secrets, QUICK)
        try:
            me = _me(web, secrets)
            asked = {"jql": _jql(places), "maxResults": 1, "fields": ["summary"]}
            found = web.ask("POST", "rest/api/3/search/jql", body=asked).body
        finally:
            web.close()
        some = "tickets are found" if found["issues"] else "no ticket is found (yet)"
        return f"you are {me['displayName']}, {some} by {_jql(places)}"


def site(web: Web, secrets: Mapping[str, str]) -> str:
    """Return the address at which people find tickets."""
    address = URL.value(secrets).rstrip("/")
    if GATEWAY not in urlsplit(address).path:
        return address
    return str(web.get("rest/api/3/serverInfo").body["baseUrl"]).rstrip("/")


def _me(web: Web, secrets: Mapping[str, str]) -> Any:
    try:
        return web.get("rest/api/3/myself").body
    except ServiceRefused as error:
        if error.facts.get("status") != 401 or GATEWAY in urlsplit(URL.value(secrets)).path:
            raise
        step = f"a token with scopes works only at https://api.atlassian.com{GATEWAY}CLOUD-ID"
        raise ServiceRefused(service=NAME, why=f"{error.facts['why']}; {step}", status=401) from None


def _jql(places: Places) -> str:
    return str(config.for_looking(places, "sentinel")[0]["polling"]["jira"]["scope"]["jql_base"])


def connect(secrets: Mapping[str, str], deadlines: Deadlines | None = None) -> Web:
    """Return the way to Jira; ServiceRefused when its address cannot be one. Nothing is asked yet."""
    address = URL.value(secrets)
    if not loopback.keeps_secrets(address):
        why = f"{URL.name} must be an address such as https://your-site.atlassian.net, and must begin with https"
        raise ServiceRefused(service=NAME, why=f"{why}: else the token could be read")
    basic = EMAIL.value(secrets), TOKEN.value(secrets)
    return Web(NAME, address, {"Accept": "application/json"}, basic=basic, deadlines=deadlines)
