#!/bin/sh
# general.sh HOME NAME: a general of mv and jq. It claims its tasks and does each by saying what it was.
cd "$1" || exit 1
while sleep 0.1; do
    for task in queue/tasks/pending/*.json; do
        [ "$(jq -r .target_general "$task" 2>/dev/null)" = "$2" ] || continue
        id=$(basename "$task" .json)
        mv "$task" queue/tasks/in_progress/ || continue
        jq '{task_id: .id, status: "success", summary: "did \(.type) without Python"}' \
            "queue/tasks/in_progress/$id.json" >"state/results/.$id.tmp"
        mv "state/results/.$id.tmp" "state/results/$id.json"
    done
done
