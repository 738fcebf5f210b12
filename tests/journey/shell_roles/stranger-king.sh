#!/bin/sh
# stranger-king.sh HOME GENERAL: a king as the seeds describe one: `repo: ""`, no ids noted in events, answers resume.
cd "$1" || exit 1
put() { jq --arg now "$(date -u +%FT%TZ)" '. + {created_at: $now}' >"$1/.$2.tmp" && mv "$1/.$2.tmp" "$1/$2.json"; }
while date -u +%FT%TZ >state/king/heartbeat && sleep 0.1; do
    for event in queue/events/pending/*.json; do
        [ -f "$event" ] && number=$((number + 1)) && id=task-$(date +%Y%m%d)-$(printf '7%02d' "$number") || continue
        jq --arg id "$id" --arg general "$2" '{$id, event_id: .id, repo: (.repo // ""), target_general: $general, priority: "normal"} +
            if .type | endswith(".human_response") then {type: "resume", payload: {human_response: .payload.human_response,
            original_task_id: .payload.task_id}} else {type, payload} end' "$event" |
            put queue/tasks/pending "$id" && mv "$event" queue/events/dispatched/
    done
    for task in queue/tasks/in_progress/*.json; do
        id=$(basename "$task" .json) && [ -f "state/results/$id.json" ] || continue
        jq -s --arg id "msg-${id#task-}" '.[0] as $t | .[1] | {$id, task_id: $t.id, context: {}} +
            if .status == "needs_human" then {type: "human_input_request", content: "[question] \(.question)",
            context: {reply_context: {general: $t.target_general, session_id, repo: ""}}} else {type: "notification", content:
            (if .status == "success" then "[complete] \(.summary)" else "[failed] \(.error // "unknown")" end)} end' \
            "$task" "state/results/$id.json" | put queue/messages/pending "msg-${id#task-}"
        mv "queue/events/dispatched/$(jq -r .event_id "$task").json" queue/events/completed/; mv "$task" queue/tasks/completed/
    done
done
