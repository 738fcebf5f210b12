#!/bin/sh
# The main process of a container: makes the home, starts the kingdom, shows its logs, and stops it when told to end.
set -eu
home=${KINGDOM_HOME:?the folder of the home}
[ -d "$home/config" ] || kingdom init "$home"
logs=
stop() {
    kingdom down
    [ -z "$logs" ] || kill "$logs"
    exit 0
}
trap stop TERM INT
kingdom up || [ $? = 1 ]  # 1: a role is not up yet, or quarantined; the others work
kingdom logs --follow &
logs=$!
wait "$logs" || true
kingdom down
exit 1
