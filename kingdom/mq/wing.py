"""The row of Yi-Rang MQ."""

from kingdom.base.wing import RoleRow, Wing

WING = Wing(
    roles=(RoleRow("mailbox", "kingdom.mailbox", has_switch=True, serves="Yi-Rang MQ, the queue for local programs"),),
    commands={"mq": "kingdom.mq.cli.yirangmq:cli"},
    inspections=("kingdom.mq.cli.inspection:store",),
)
