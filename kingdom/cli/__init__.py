"""`kingdom`: the command line. One module per command group, loaded when its command is called."""

from kingdom import wings

COMMANDS = {
    "demo": "kingdom.demo.demo:demo",
    "init": "kingdom.cli.init:init",
    "adopt": "kingdom.cli.adopt:adopt",
    "up": "kingdom.cli.start_stop:up",
    "down": "kingdom.cli.start_stop:down",
    "start": "kingdom.cli.start_stop:start",
    "stop": "kingdom.cli.start_stop:stop",
    "restart": "kingdom.cli.start_stop:restart",
    "status": "kingdom.cli.status:status",
    "doctor": "kingdom.cli.doctor:doctor",
    "connect": "kingdom.cli.connect:connect",
    "say": "kingdom.cli.say:say",
    "emit": "kingdom.cli.emit:emit",
    "events": "kingdom.cli.queues:events",
    "tasks": "kingdom.cli.queues:tasks",
    "queue": "kingdom.cli.queues:queue",
    **{name: row for wing in wings.rows() for name, row in wing.commands.items()},
    "why": "kingdom.cli.why:why",
    "logs": "kingdom.cli.logs:logs",
    "attach": "kingdom.cli.logs:attach",
    "generals": "kingdom.cli.generals:generals",
    "report": "kingdom.cli.report:report",
    "metrics": "kingdom.cli.metrics:metrics",
    "systemd": "kingdom.cli.systemd:systemd",
    "prune": "kingdom.cli.prune:prune",
    "fsck": "kingdom.cli.fsck:fsck",
    "backup": "kingdom.cli.backup:backup",
    "restore": "kingdom.cli.backup:restore",
}
"""In the order in which `kingdom --help` shows them."""
