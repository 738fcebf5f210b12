"""Text for people: durations, tables, the state of a role, and text that is safe to print in a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Self

from kingdom.base.times import moment

STATES = {
    "absent": "not running",
    "degraded": "failing, see its log",
    "down": "stopped by hand",
    "foreign": "played by another program",
    "quarantined": "quarantined after a crash loop",
    "silent": "silent, hung?",
}
"""Words for the states of a role that does not do what it should; the other states are words already."""
DAY = 86400
LONGEST = 100 * 365 * DAY
STEPS = ((DAY * 365 * 2, DAY * 365, "y"), (DAY * 2, DAY, "d"), (3600 * 2, 3600, "h"), (120, 60, "min"), (0, 1, "s"))
MOST_CHOICES, LONGEST_CHOICE = 10, 75
"""More, or longer ones, are no choices but text."""
_CHOICE = r"\s*(?:[-*•]|\(?\d{1,2}[.)]|\(?[a-zA-Z][.)])\s+(\S.*?)\s*"
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


class Said(str):
    """A sentence, and as data what it says: for whoever tells it in another language."""

    #: By which readers know the sentence.
    code: str
    #: What stands in it: names, numbers, other sentences.
    values: Mapping[str, object]

    def __new__(cls, code: str, text: str, **values: object) -> Self:
        """Return the English text of a sentence together with its code and values."""
        said = super().__new__(cls, text)
        said.code, said.values = code, values
        return said

    def to_json(self) -> dict[str, object]:
        """Return code and values; a sentence within as its own code and values."""
        values = {name: part.to_json() if isinstance(part, Said) else part for name, part in self.values.items()}
        return {"code": self.code, "values": values}


def duration(seconds: float) -> str:
    """Return seconds as `0.4 s`, `12 s`, `3 min`, `5 h`, `2 d`, `4 y`."""
    if seconds > LONGEST:
        return "more than 100 y"
    if seconds < 3:
        return f"{seconds:.1f} s"
    return next(f"{seconds / unit:.0f} {name}" for least, unit, name in STEPS if seconds >= least)


def time_apart(stamped: object, now: float) -> str:
    """Return how far a moment, as files write it, is from now; "?" when it is not a moment."""
    try:
        return duration(abs(now - moment(str(stamped))))
    except (ValueError, OverflowError):
        return "?"


def printable(text: object) -> str:
    """Return text without control characters: text from outside must not control the terminal."""
    return str(text).translate(_CONTROL)


def one_line(text: object, most: int = 100) -> str:
    """Return text as one line of at most so many characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 task`, `2 tasks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def table(rows: Sequence[Sequence[object]], head: Sequence[str] = (), indent: str = "  ") -> str:
    """Return rows with their columns side by side, under an optional head."""
    cells = [[str(cell) for cell in row] for row in ([head, *rows] if head else rows)]
    if not cells:
        return ""
    widths = [max(width(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "\n".join(_row(row, widths, indent) for row in cells)


def width(text: str) -> int:
    """Return how many columns a text takes on a terminal: Korean and Japanese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _row(row: Sequence[str], widths: Sequence[int], indent: str) -> str:
    padded = (cell + " " * (most - width(cell)) for cell, most in zip(row, widths, strict=True))
    return (indent + "  ".join(padded)).rstrip()


def closest(word: str, known: list[str]) -> str:
    """Return `, did you mean …?` for the end of an error, or nothing."""
    import difflib  # slow to load, and only errors need it

    near = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def choices_in(question: str) -> tuple[str, ...]:
    """Return the answers that a question offers: the list at its end, one item a line, two at least."""
    found: list[str] = []
    for line in reversed(question.rstrip().splitlines()):
        if (item := re.fullmatch(_CHOICE, line)) is None:
            break
        found.insert(0, item[1])
    fits = 2 <= len(found) <= MOST_CHOICES and all(len(choice) <= LONGEST_CHOICE for choice in found)
    return tuple(found) if fits and len(set(found)) == len(found) else ()
