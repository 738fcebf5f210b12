"""Show text on a terminal, in colour and within its width, or plainly where the output is read by a program.

The commands say what stands in a section; how it is laid out is decided here. Only a terminal loads the library rich.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kingdom.base.words import count, table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

INDENT = 2
MOST_ROWS = 3
"""Rows that one line may take where there are few."""
PLAIN_TERMINALS = ("", "dumb", "unknown")
OTHER_SCREEN, OWN_SCREEN = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
TO_THE_TOP, END_OF_LINE, REST_OF_SCREEN = "\033[H", "\033[K", "\033[J"
BAD = "bold red"
LONGEST_TEXT = 200
"""Characters of a text from outside that a line shows at most."""


class Part(NamedTuple):
    """A piece of text in one style, as rich names it: `bold red`."""

    text: str
    style: str = ""


class Line(NamedTuple):
    """One line of text; on a narrow terminal it goes on below."""

    parts: Sequence[Part]
    indent: int = INDENT
    #: A command to copy: it is never wrapped by us.
    whole: bool = False
    #: How much further in it goes on below.
    hang: int = INDENT


class Column(NamedTuple):
    title: str
    #: It is left out of narrower windows.
    least_width: int = 0
    #: It gives way when the window is narrow.
    shrinks: bool = False


class Table(NamedTuple):
    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Part]]
    indent: int = INDENT


class Section(NamedTuple):
    """Lines that belong together, after an empty line if there is space."""

    body: Sequence[Line | Table]
    title: str = ""
    style: str = "bold"
    #: What is said of it beside its title.
    remark: str = ""
    #: What stands there instead of `body` when the window is too low for all of it.
    brief: Sequence[Line | Table] | None = None

    def lines(self, in_brief: bool = False) -> Iterator[Line | Table]:
        if self.title:
            remark = [Part(f"  {self.remark}", "dim")] if self.remark else []
            yield Line([Part(self.title, self.style), *remark], indent=0)
        yield from self.brief if in_brief and self.brief is not None else self.body


class Window(NamedTuple):
    """A terminal as it is now."""

    width: int
    height: int
    #: Colours and the movements of the cursor, which some terminals cannot and some people do not want.
    colours: bool = True
    moves: bool = True


def window() -> Window | None:
    """Return the terminal that the output goes to; None when it goes to a file or another program."""
    if not sys.stdout.isatty():
        return None
    import shutil  # slow to load, and a pipe has no size

    columns, rows = shutil.get_terminal_size()
    moves = os.environ.get("TERM", "") not in PLAIN_TERMINALS
    return Window(max(columns, 20), max(rows, 5), moves and not os.environ.get("NO_COLOR"), moves)


def line(text: str, style: str = "", indent: int = INDENT) -> Line:
    return Line([Part(text, style)], indent)


def command(text: str, indent: int = 2 * INDENT) -> Line:
    """Return a line that holds a command to copy."""
    return Line([Part(text, "cyan")], indent, whole=True)


def show(sections: Sequence[Section]) -> None:
    """Print sections, on a terminal so that they fit above the prompt if they can."""
    print(as_text(sections, window()))


def as_text(sections: Sequence[Section], seen: Window | None) -> str:
    """Return sections as they are shown in a window, or plainly where there is none."""
    return "\n\n".join(map(plain, sections)) if seen is None else fitted(sections, seen, seen.height - 1)


def fitted(sections: Sequence[Section], seen: Window, rows: int, crop: bool = False) -> str:
    """Return sections laid out for a window: with empty lines between them, without, or in brief, as the rows allow.

    Cropped, no line goes beyond the window.
    """
    blocks = [_laid_out(section, seen, crop) for section in sections]
    if _rows_of("\n\n".join(blocks), seen) <= rows:
        return "\n\n".join(blocks)
    if _rows_of("\n".join(blocks), seen) > rows and any(section.brief is not None for section in sections):
        blocks = _in_brief(sections, seen, rows, crop)
    return "\n".join(blocks)


def _in_brief(sections: Sequence[Section], seen: Window, rows: int, crop: bool) -> list[str]:
    """Return sections with one row for each line; the first ones take what is left of the window's rows.

    The first that has a title is what people must see: it takes up to half of the window before others get any. When
    there is no room for all, the last ones are missing: else the first would scroll away. A cropped text says so
    itself.
    """
    blocks, hidden = [_laid_out(section, seen, crop, 1) for section in sections], 0
    must_see = next((at for at, section in enumerate(sections) if section.title), 0)
    given = [1] * len(sections)
    for most in range(2, MOST_ROWS + 1):
        longer = _laid_out(sections[must_see], seen, crop, most)
        if _rows_of(longer, seen) <= rows // 2:
            blocks[must_see], given[must_see] = longer, most
    while not crop and len(blocks) > 1 and _rows_of("\n".join(blocks), seen) > rows - bool(hidden):
        hidden += len(blocks.pop().splitlines())
    rows -= bool(hidden)
    for at in range(len(blocks)):
        for most in range(given[at] + 1, MOST_ROWS + 1):
            with_more = [*blocks[:at], _laid_out(sections[at], seen, crop, most), *blocks[at + 1 :]]
            if with_more == blocks or _rows_of("\n".join(with_more), seen) > rows:
                break
            blocks = with_more
    return [*blocks, f"… {count(hidden, 'more line')} in a larger window"] if hidden else blocks


def _rows_of(text: str, seen: Window) -> int:
    """Return how many rows a text takes in a window: a command to copy goes on below by itself."""
    from rich.text import Text

    return sum(max(1, -(-Text.from_ansi(line).cell_len // seen.width)) for line in text.splitlines())


def plain(section: Section) -> str:
    return "\n".join(_plain(part) for part in section.lines())


def _plain(part: Line | Table) -> str:
    if isinstance(part, Line):
        return " " * part.indent + "".join(piece.text for piece in part.parts)
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in part.rows]
    head = [column.title for column in part.columns]
    return table(rows, head if any(head) else (), " " * part.indent)


def _laid_out(section: Section, seen: Window, crop: bool, most: int | None = None) -> str:
    """Return a section as it is shown, or in brief, with at most so many rows for a line."""
    from rich.text import Text

    console = _console(seen)
    with console.capture() as captured:
        for part in section.lines(most is not None):
            if isinstance(part, Table):
                console.print(_rich_table(part, seen))
            elif part.whole:
                text = Text.assemble(" " * part.indent, *part.parts)
                console.print(text, soft_wrap=not crop, no_wrap=crop or None, overflow="ellipsis" if crop else None)
            else:
                _print_wrapped(console, part, most)
    return "\n".join(text.rstrip() for text in captured.get().splitlines())


def _print_wrapped(console: Console, line: Line, most: int | None) -> None:
    """Print a line on as many rows as it needs, or at most so many; what goes on below stands further in."""
    from rich.text import Text

    text = Text.assemble(*line.parts)
    room = max(console.width - line.indent, 1)
    first = text.wrap(console, room)[0]
    rest = text[len(first) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    rows = [first, *(rest.wrap(console, max(room - line.hang, 1)) if rest else ())]
    if most is not None and len(rows) > most:
        # What does not fit is cut by the console, in a word that is longer than a row as well.
        rows = [*rows[: most - 1], Text("").join(rows[most - 1 :])]
    for at, row in enumerate(rows):
        console.print(Text(" " * (line.indent + (line.hang if at else 0))) + row, no_wrap=True, overflow="ellipsis")


def _console(seen: Window) -> Console:
    from rich.console import Console

    return Console(
        width=seen.width,
        height=seen.height,
        force_terminal=seen.colours,
        color_system="auto" if seen.colours else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _rich_table(part: Table, seen: Window) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = [at for at, column in enumerate(part.columns) if column.least_width <= seen.width]
    has_head = any(column.title for column in part.columns)
    grid = RichTable(box=None, show_header=has_head, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for at in shown:
        column = part.columns[at]
        grid.add_column(Text(column.title, no_wrap=True, overflow="ellipsis"), no_wrap=not column.shrinks)
    for row in part.rows:
        cells = [Part(cell) if isinstance(cell, str) else cell for cell in (row[at] for at in shown)]
        grid.add_row(*(Text(cell.text, style=cell.style, no_wrap=True, overflow="ellipsis") for cell in cells))
    return Padding(grid, (0, 0, 0, part.indent), expand=False)


@contextmanager
def other_screen() -> Iterator[None]:
    """Use the terminal's other screen, so that what stood there before comes back at the end."""
    print(OTHER_SCREEN, end="", flush=True)
    try:
        yield
    finally:
        print(OWN_SCREEN, end="", flush=True)


def watch(look: Callable[[], Sequence[Section]], seconds: float) -> NoReturn:
    """Show it again and again. Ctrl-C and TERM bring back what stood on the terminal before."""
    from kingdom.base.runtime.wake import Waker

    waker, seen = Waker((), "poll"), window()
    if seen is None or not seen.moves:
        while True:
            print(as_text(look(), seen) + "\n", flush=True)
            waker.wait(seconds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with other_screen():
        while True:
            seen = window() or seen
            redraw(look(), seen)
            waker.wait(seconds)


def redraw(sections: Sequence[Section], seen: Window) -> None:
    """Redraw the other screen, clipped to the window."""
    print(
        TO_THE_TOP + clipped(fitted(sections, seen, seen.height, crop=True), seen) + REST_OF_SCREEN, end="", flush=True
    )


def clipped(text: str, seen: Window) -> str:
    """Return as many lines as the window has rows, the last of which says how many are missing."""
    lines = text.splitlines()
    if len(lines) > seen.height:
        hidden = len(lines) - seen.height + 1
        lines = [*lines[: seen.height - 1], f"… {hidden} more lines"]
    return f"{END_OF_LINE}\n".join(lines) + END_OF_LINE
