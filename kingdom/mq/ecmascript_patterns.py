"""Patterns in the dialect of ECMAScript, which older configurations use, as Python's `re` understands them."""

from __future__ import annotations

import re

_DOT = r"[^\n\r\u2028\u2029]"
_SAME = frozenset("dDwWsSbBfnrtv")
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!")
_NAMED = re.compile(r"\(\?<([A-Za-z_]\w*)>", re.ASCII)
_BACK = re.compile(r"\\k<([A-Za-z_]\w*)>", re.ASCII)
_NUMBER = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[1-9]\d?)", re.ASCII)
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??", re.ASCII)
_POSIX = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "xdigit": "0-9A-Fa-f",
    "punct": r"!-/:-@\[-`{-~",
    "blank": r" \t",
}


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern whose `fullmatch` judges as ECMAScript would. ValueError when it is none."""
    try:
        return re.compile(_translated(pattern), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _translated(pattern: str) -> str:
    parts: list[str] = []
    at = 0
    quantified = False
    while at < len(pattern):
        quantifier = _QUANTIFIER.match(pattern, at)
        if quantifier and quantified:
            raise ValueError(f"nothing to repeat at {at}")
        part, at = (quantifier[0], quantifier.end()) if quantifier else _next(pattern, at)
        quantified = quantifier is not None
        parts.append(part)
    return "".join(parts)


def _next(pattern: str, at: int) -> tuple[str, int]:
    """Return the translation of what begins here, and where it ends."""
    letter = pattern[at]
    if letter == "\\":
        return _escape(pattern, at)
    if letter == "[":
        return _set(pattern, at)
    if letter == "$":
        return r"\Z", at + 1
    if letter == ".":
        return _DOT, at + 1
    if pattern.startswith("(?", at):
        if found := _NAMED.match(pattern, at):
            return f"(?P<{found[1]}>", found.end()
        for group in _GROUPS:
            if pattern.startswith(group, at):
                return group, at + len(group)
        raise ValueError(f"no group of this kind at {at}")
    return letter, at + 1


def _escape(pattern: str, at: int) -> tuple[str, int]:
    letter = pattern[at + 1 : at + 2]
    if not letter:
        raise ValueError("it ends in a backslash")
    if letter in _SAME:
        return f"\\{letter}", at + 2
    if found := _NUMBER.match(pattern, at):
        return found[0], found.end()
    if found := _BACK.match(pattern, at):
        return f"(?P={found[1]})", found.end()
    if letter == "0":
        return r"\x00", at + 2
    if letter == "c" and pattern[at + 2 : at + 3].isalpha():
        return f"\\x{ord(pattern[at + 2]) % 32:02x}", at + 3
    if letter.isascii() and letter.isalnum():
        raise ValueError(f"no escape \\{letter}")
    return re.escape(letter), at + 2


def _set(pattern: str, at: int) -> tuple[str, int]:
    for whole, means in (("[^]", r"[\s\S]"), ("[]", "(?!)")):
        if pattern.startswith(whole, at):
            return means, at + len(whole)
    parts = ["["]
    at += 1
    if pattern.startswith("^", at):
        parts.append("^")
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\":
            part, at = _escape(pattern, at)
        elif pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
            name = pattern[at + 2 : end]
            if name not in _POSIX:
                raise ValueError(f"no class named {name!r}")
            part, at = _POSIX[name], end + 2
        else:
            letter = pattern[at]
            part, at = (f"\\{letter}" if letter in "[&|~" else letter), at + 1
        parts.append(part)
    if at == len(pattern):
        raise ValueError("a set without its end")
    return "".join([*parts, "]"]), at + 1
