"""The row of the council."""

from kingdom.base.wing import RoleRow, Wing

WING = Wing(
    roles=(RoleRow("council", "kingdom.council", has_switch=True, serves="hands agents their messages"),),
    works_for="gen-council",
    commands={"mime": "kingdom.council.cli.mime:mime", "council": "kingdom.council.cli.council:council"},
    checks="kingdom.council.cli.checks:findings",
    steps={"council": "kingdom.council.general:STEPS"},
    has_task="kingdom.council.reasons:has_task",
    folders=("workspace/queue",),
    furnish="kingdom.council.furnish:furnish",
    invariants="kingdom.council.upkeep:CHECKS",
    retention="kingdom.council.upkeep:RULES",
    copies="kingdom.council.copies:COPIES",
    figures="kingdom.council.figures:of",
    shown="kingdom.council.cli.shown:section",
    metrics="kingdom.council.metrics:METRICS",
    stories="kingdom.council.cli.why_council:find",
)
