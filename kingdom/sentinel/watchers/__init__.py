"""Sources of events. Each is one module, one row here, and one part of `polling` in sentinel.yaml."""

WATCHERS = {
    "github": "kingdom.sentinel.watchers.github:GitHubWatcher",
    "jira": "kingdom.sentinel.watchers.jira:JiraWatcher",
    "files": "kingdom.sentinel.watchers.files:FilesWatcher",
    "command": "kingdom.sentinel.watchers.command:CommandWatcher",
}
