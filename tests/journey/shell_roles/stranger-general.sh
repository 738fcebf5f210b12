#!/bin/sh
# stranger-general.sh HOME NAME: a general as the seeds describe one: short checkpoints, results with nulls, a session file.
cd "$1" || exit 1
put() { cat >"state/results/.$1.tmp" && mv "state/results/.$1.tmp" "state/results/$1"; }
while mkdir -p "state/$2" && date -u +%FT%TZ >"state/$2/heartbeat" && sleep 0.1; do
    for task in queue/tasks/pending/*.json; do
        [ "$(jq -r .target_general "$task" 2>/dev/null)" = "$2" ] || continue
        id=$(basename "$task" .json) && mv "$task" queue/tasks/in_progress/ && task=queue/tasks/in_progress/$id.json || continue
        case $(jq -r '"\(.type) \(.payload.text)"' "$task") in
        resume*) jq '{task_id: .id, status: "success", summary: "painted \(.payload.human_response)", error: null}' "$task" ;;
        *fail*) jq '{task_id: .id, status: "killed", metrics: null, memory_updates: null}' "$task" ;;
        *ask*) echo "session-of-$id" | put "$id-session-id"
            jq '{task_id: .id, target_general, repo: "", payload, created_at}' "$task" | put "$id-checkpoint.json"
            jq '{task_id: .id, status: "needs_human", question: "which colour?", proclamation: {}}' "$task" ;;
        *) jq '{task_id: .id, status: "success", summary: "did it", notify_channel: "", proclamation: null}' "$task" ;;
        esac | put "$id.json"
    done
done
