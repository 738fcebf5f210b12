"""The row of the hall."""

from kingdom.base.wing import RoleRow, Wing

WING = Wing(
    roles=(
        RoleRow("gateway", "kingdom.gateway", has_switch=True, serves="chat rooms over HTTP and Socket.IO"),
        RoleRow("worker", "kingdom.worker", has_switch=True, serves="stores what people say in the hall"),
    ),
    instances_in="hall",
    commands={"hall": "kingdom.hall.cli.hall:hall"},
    checks="kingdom.hall.cli.checks:findings",
    inspections=("kingdom.hall.cli.inspection:topics", "kingdom.hall.cli.inspection:database"),
    keeps_messages="kingdom.hall.reasons:keeps_messages",
    copies="kingdom.hall.copies:COPIES",
    figures="kingdom.hall.figures:of",
    shown="kingdom.hall.cli.shown:section",
    metrics="kingdom.hall.metrics:METRICS",
    channels={"hall": "kingdom.hall.channel.channel:HallChannel"},
    stories="kingdom.hall.cli.why_chat:find",
    greeting="kingdom.hall.cli.hall:greeting",
)
