"""`kingdom emit`: create an event of any type, as a program would."""

from __future__ import annotations

import sys
import time

import click

from kingdom.base.disk.codec import LARGEST, parse_json
from kingdom.base.errors import BadInput, BadMessage, Exit, Usage
from kingdom.base.home import schemas
from kingdom.base.program import home
from kingdom.base.program.call import Finite
from kingdom.base.records.messages import Event
from kingdom.base.times import stamp
from kingdom.cli import say

SOURCE = "cli"


@click.command(short_help="Create an event of any type.")
@click.argument("type_", metavar="TYPE")
@click.option("--payload", metavar="JSON", default="{}", help="Its payload, a JSON object; - reads it from stdin.")
@click.option("--repo", metavar="OWNER/NAME", help="The repository that it is about.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), default="normal", show_default=True)
@click.option("--wait", is_flag=True, help="Wait, and print the messages that it leads to, not only its id.")
@click.option("--timeout", type=Finite(min=0), default=300.0, show_default=True, help="With --wait: seconds to wait.")
@click.option("--json", "in_json", is_flag=True, help="With --wait: print each message as one line of JSON.")
def emit(type_: str, payload: str, repo: str | None, priority: str, wait: bool, timeout: float, in_json: bool) -> int:
    """Create an event of this TYPE and print its id, like `kingdom emit github.pr.mentioned --repo acme/shop`.

    With --wait, exit code 0 when the last message is an answer or a question, 1 when it says [failed].
    """
    places = home.find()
    places.check()
    said = _object(sys.stdin.buffer.read(LARGEST + 1) if payload == "-" else payload.encode("utf-8", "surrogateescape"))

    event = Event(
        id=f"evt-{SOURCE}",
        type=type_,
        source=SOURCE,
        repo=repo or None,
        payload=said,
        priority=priority,
        created_at=stamp(time.time()),
    )
    try:
        schemas.check("event", event.to_json())
    except BadMessage as error:
        raise Usage(message=f"this is no event: {error.facts['why']}") from None
    if wait:
        return say.print_messages(places, event, timeout, in_json)
    print(say.create(places, event))
    return Exit.DONE


def _object(data: bytes) -> dict[str, object]:
    try:
        value = parse_json(data)
    except ValueError as error:
        raise BadInput(message=f"the payload is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadInput(message='the payload is not a JSON object, such as {"text": "hello"}')
    return value
