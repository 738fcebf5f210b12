"""How things are said to people: durations, tables, a role's state, and text that cannot play tricks on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from kingdom.times import moment

STATES = {
    "absent": "not running",
    "degraded": "hindered, see its log",
    "down": "stopped by hand",
    "quarantined": "quarantined after a crash loop",
    "silent": "silent, hung?",
}
"""Of a role that does not do what it should; the other states speak for themselves."""
STEPS = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (120, 60, "min"), (0, 1, "s"))
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `5 h`, `2 d`."""
    if seconds < 3:
        return f"{seconds:.1f} s"
    return next(f"{seconds / unit:.0f} {name}" for least, unit, name in STEPS if seconds >= least)


def time_apart(stamped: object, now: float) -> str:
    """The span between a moment as it is written in a file and now; "?" when somebody wrote what is none."""
    try:
        return duration(abs(now - moment(str(stamped))))
    except (ValueError, OverflowError):
        return "?"


def printable(text: object) -> str:
    """Without control characters: what comes from outside must not steer the terminal."""
    return str(text).translate(_CONTROL)


def one_line(text: object, most: int = 100) -> str:
    """On one line, cut where it would be long."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def table(rows: Sequence[Sequence[object]], head: Sequence[str] = (), indent: str = "  ") -> str:
    """Columns side by side; the last one may be long."""
    cells = [[str(cell) for cell in row] for row in ([head, *rows] if head else rows)]
    if not cells:
        return ""
    widths = [max(width(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "\n".join(_row(row, widths, indent) for row in cells)


def width(text: str) -> int:
    """Columns on a terminal: Korean and Japanese letters take two."""
    return len(text) if text.isascii() else sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def _row(row: Sequence[str], widths: Sequence[int], indent: str) -> str:
    padded = (cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True))
    return (indent + "  ".join(padded)).rstrip()


def closest(word: str, known: list[str]) -> str:
    """`, did you mean …?` for an error's end, or nothing."""
    import difflib  # slow to load, and only errors need it

    near = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""
