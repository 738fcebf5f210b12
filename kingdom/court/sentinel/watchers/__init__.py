"""Sources of events. Each is one module, one row here, and one part of `polling` in sentinel.yaml."""

WATCHERS = {
    "github": "kingdom.court.sentinel.watchers.github:GitHubWatcher",
    "jira": "kingdom.court.sentinel.watchers.jira:JiraWatcher",
    "files": "kingdom.court.sentinel.watchers.files:FilesWatcher",
    "command": "kingdom.court.sentinel.watchers.command:CommandWatcher",
}
