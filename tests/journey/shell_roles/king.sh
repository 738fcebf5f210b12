#!/bin/sh
# king.sh HOME GENERAL: a king of mv and jq. Every event becomes a task of GENERAL, every result a letter.
cd "$1" || exit 1
put() { cat >"$1/.$2.tmp" && mv "$1/.$2.tmp" "$1/$2.json"; }
while sleep 0.1; do
    for event in queue/events/pending/*.json; do
        [ -f "$event" ] && number=$((number + 1)) && id=task-$(date +%Y%m%d)-$(printf '8%02d' "$number") || continue
        jq --arg id "$id" --arg general "$2" --arg now "$(date -u +%FT%TZ)" '{$id, event_id: .id, repo, payload, type,
            target_general: $general, priority: (.priority // "normal"), created_at: $now}' "$event" |
            put queue/tasks/pending "$id" && mv "$event" queue/events/dispatched/
    done
    for task in queue/tasks/in_progress/*.json; do
        id=$(basename "$task" .json) && [ -f "state/results/$id.json" ] || continue
        jq -s --arg id "msg-${id#task-}" --arg now "$(date -u +%FT%TZ)" '{$id, type: "notification", task_id: .[0].id,
            content: "[complete] \(.[0].type) — \(.[1].summary)", created_at: $now}' "$task" "state/results/$id.json" |
            put queue/messages/pending "msg-${id#task-}"
        mv "queue/events/dispatched/$(jq -r .event_id "$task").json" queue/events/completed/
        mv "$task" queue/tasks/completed/
    done
done
