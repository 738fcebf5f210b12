"""Ways to reach people."""

CHANNELS = {
    "console": "kingdom.envoy.channels.console:Console",
}
