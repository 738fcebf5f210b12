#!/bin/sh
# Run checks on a copy of the program as a user who is not root and can make no control groups: as_user.sh PYTEST-WORDS…
# With WITHOUT="tmux jq" as if these were not installed.
# In a view of the disk of its own, so that the user also reaches a Python that lies in a closed folder, such as /root.
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "as_user.sh: needs root, to become somebody else" >&2; exit 2; }
[ -n "${KINGDOM_OWN_VIEW:-}" ] || exec env KINGDOM_OWN_VIEW=1 unshare --mount --propagation private "$0" "$@"

. "$checkout/tests/faults/reach.sh"

python=$("$checkout/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')
reach "$python"
as_user test -x "$checkout/.venv/bin/python" || { echo "as_user.sh: $checkout must lie where all may read" >&2; exit 2; }

room=$(mktemp -d /tmp/kd-user-XXXXXX)
trap 'rm -rf --one-file-system "$room"' EXIT
mkdir "$room/program" "$room/home" "$room/tmp" "$room/bin"
cd "$checkout"
git ls-files -z --cached --others --exclude-standard | tar c --null --ignore-failed-read -T - | tar x -C "$room/program"
git init -q "$room/program" && git -C "$room/program" add --force .
chown -R "$user:$user" "$room"
path=$PATH
if [ -n "${WITHOUT:-}" ]; then
    (IFS=: && for folder in $PATH; do ln -s "$folder"/* "$room/bin/" 2>/dev/null || :; done)
    for tool in $WITHOUT; do rm -f "$room/bin/$tool"; done
    path=$room/bin
fi
cd "$room/program"
as_user env -i PATH="$path" LANG=C.UTF-8 HOME="$room/home" TMPDIR="$room/tmp" PYTHONDONTWRITEBYTECODE=1 \
    ${KINGDOM_CAMPAIGN:+KINGDOM_CAMPAIGN="$KINGDOM_CAMPAIGN"} \
    "$checkout/.venv/bin/python" -m pytest -p no:cacheprovider "$@"
