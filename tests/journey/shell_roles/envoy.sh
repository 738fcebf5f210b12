#!/bin/sh
# envoy.sh HOME: an envoy of mv and jq. It says every letter in the file HOME/said.
cd "$1" || exit 1
while sleep 0.1; do
    for letter in queue/messages/pending/*.json; do
        [ -f "$letter" ] || continue
        jq -r '"\(.task_id): \(.content)"' "$letter" >>said && mv "$letter" queue/messages/sent/
    done
done
