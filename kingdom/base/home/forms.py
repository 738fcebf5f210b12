"""What the patterns of the schemas ask for, in words for people: a test sees that each has its row."""

from __future__ import annotations

TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z$"
"""How our files write a moment. Those of other writers may have any offset from UTC: `records/foreign.py`."""
_UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_AGENTS = (
    "^(user|leader|strategist|architect|evaluator|coordinator|innovator|ignitian(_[0-9]{1,4})?|system|queue_monitor|"
    "[a-z0-9_]{1,60}_watcher)$"
)

FORMS = {
    TIME: "a time with its offset from UTC, such as 2026-11-18T09:30:00Z or 2026-11-18T18:30:00+09:00",
    "^[A-Za-z0-9_:@+-][A-Za-z0-9._:@+-]{0,199}$": (
        "a name of at most 200 letters (A to Z), digits and . _ : @ + -, which does not begin with a dot"
    ),
    "^[A-Za-z0-9_@+-][A-Za-z0-9._@+-]*$": (
        "the name of one folder: letters (A to Z), digits and . _ @ + -, which does not begin with a dot"
    ),
    "^[A-Za-z0-9_-]{1,80}$": "a name of at most 80 letters (A to Z), digits, underscores and hyphens",
    "^gen-[a-z][a-z0-9-]{0,60}$": "the name of a general: gen- and small letters, digits and hyphens, as gen-weather",
    "^gen-": "the name of a general, which begins with gen-",
    r"^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?)$": (
        "a type of events, such as github.pr.opened, or how types begin and a star: github.pr.*"
    ),
    "^[A-Za-z_][A-Za-z0-9_]*$": "the name of an environment variable, such as API_TOKEN",
    r"^\s*[0-9]{1,15}(\.[0-9]{1,9})?\s*(ms|s|m|h|d)\s*$": "a number or a time span, such as 250ms, 30s, 5m or 7d",
    "^[a-z0-9][a-z0-9-]{0,30}$": "a name of at most 31 small letters, digits and hyphens, which begins with no hyphen",
    _UUID: "a UUID, such as 1b4e28ba-2fa1-4d3b-9c5e-6f0a7b8c9d0e",
    "^[0-7][0-9A-HJKMNP-TV-Z]{25}$": "a ULID: 26 digits and capital letters",
    _AGENTS: "an agent of the council: leader, strategist, architect, evaluator, coordinator, innovator, ignitian_1 …",
    "^(issue|pr)_": "an event of GitHub, which begins with issue_ or pr_",
    "^[0-7]{3,4}$": "a file mode of three or four octal digits, such as 0770",
    "^([0-7]{3,4})?$": "a file mode of three or four octal digits, such as 0770, or nothing",
    r"^$|^https?://[^/?#@\s]+$": "an address without a path that begins with http:// or https://, or nothing",
    "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$": "an IP address, or a network such as 10.0.0.0/8",
    r"^[^<>\u0000-\u001f]+$": "one line without < and >",
    "^https?://": "an address that begins with http:// or https://",
    "^https?://[^/ ]+[^ ]*$": "an address without blanks that begins with http:// or https://",
    "^(sqlite|postgres|postgresql)://": "an address that begins with sqlite:// or postgresql://",
    r"^[^\r\n]+@[^\r\n]+$": "a mail address",
    "^[^{}]*[{]repo[}][^{}]*$": "an address with {repo} in it once, such as https://github.com/{repo}.git",
}


def asked_for(pattern: str) -> str:
    """Return what a pattern asks for; of a user's own schema the pattern itself."""
    return FORMS.get(pattern, f"a text that fits the pattern {pattern}")
