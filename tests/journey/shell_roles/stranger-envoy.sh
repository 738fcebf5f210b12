#!/bin/sh
# stranger-envoy.sh HOME: an envoy of the older kind. It posts into the file HOME/said; what lies in HOME/replies/TASK is
# a person's answer, which becomes an event of task_id and human_response and nothing else.
cd "$1" || exit 1
mkdir -p replies
while date -u +%FT%TZ >state/envoy/heartbeat && sleep 0.1; do
    for message in queue/messages/pending/*.json; do
        [ -f "$message" ] || continue
        jq -r '"\(.task_id): \(.content)"' "$message" >>said && mv "$message" queue/messages/sent/
    done
    for reply in replies/*; do
        [ -f "$reply" ] && task=${reply#replies/} && id=evt-slack-reply-$task || continue
        jq -n --arg id "$id" --arg task "$task" --arg text "$(cat "$reply")" --arg now "$(date -u +%FT%TZ)" '{$id, created_at: $now,
            type: "slack.human_response", source: "slack", payload: {task_id: $task, human_response: $text}}' >"queue/events/pending/.$id.tmp"
        mv "queue/events/pending/.$id.tmp" "queue/events/pending/$id.json" && rm "$reply"
    done
done
