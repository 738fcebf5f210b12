"""`kingdom mime`: the codec of the council's messages, with the schemas of their bodies."""

from __future__ import annotations

import click

from kingdom.council import mime as codec
from kingdom.council.bodies import faults_of_body


@click.command(
    short_help="Write, read and edit messages of the council.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND ...")
def mime(words: tuple[str, ...]) -> int:
    """Write, read and edit messages of the council: MIME headers and a YAML body.

    COMMAND is build, parse, extract-body, update-status, update-header, remove-header, validate or send; `kingdom mime
    --help` lists their options. scripts/lib/ignite_mime.py in the home does the same without Kingdom, except that it
    knows of a body only whether required fields are there.
    """
    if words[:1] in (("--help",), ("-h",)):
        print("Usage: kingdom mime COMMAND ..., for one of the commands below.\n")
    return codec.main(words, faults_of_body)
