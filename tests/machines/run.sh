#!/bin/sh
# run.sh [test]: the newcomer's commands in a clean clone, as on a kernel without Landlock and as in a container.
# With `test` also `make test` in each. Its home is empty, its environment clean; nothing that it started is left.
# What a command said that failed is kept in build/machines/.
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v cc >/dev/null 2>&1; then
    echo 'SKIPPED: NO C COMPILER HERE, SO NO OTHER MACHINES CAN BE PLAYED'
    exit 0
fi
kept=$checkout/build/machines
mkdir -p "$kept"
room=$(mktemp -d /tmp/kd-machines-XXXXXX)
trap 'if [ -x bin/kingdom ]; then make -s down >"$room/said" 2>&1; fi; rm -rf "$room"' EXIT
cc -O2 -Wall -Wextra -Werror -o "$room/oldkernel" "$checkout/tests/machines/oldkernel.c"
git clone -q "$checkout" "$room/castle"
mkdir "$room/home"
cd "$room/castle"

# on MINUTES MACHINE COMMAND…: as a newcomer types it on such a machine; ended with 124 after that time.
on() {
    minutes=$1
    machine=$2
    shift 2
    began=$(date +%s)
    code=0
    env -i HOME="$room/home" PATH="$PATH" LANG=C.UTF-8 TERM=dumb \
        timeout --kill-after=30 "${minutes}m" "$room/oldkernel" "$machine" "$@" </dev/null >"$room/said" 2>&1 || code=$?
    echo "$machine: $*: exit $code after $(($(date +%s) - began)) s"
    [ "$code" = 0 ] || { tail -n 40 "$room/said"; cp "$room/said" "$kept/$machine.log"; failed=1; }
}

failed=0
bin/setup run
for machine in nolandlock container; do
    on 15 "$machine" make up
    on 3 "$machine" bin/kingdom say 'brief me'
    on 8 "$machine" make demo
    grep -q 'not held here' "$room/said" || { echo "$machine: the demo does not say what is not held"; failed=1; }
    on 3 "$machine" make down
    if [ "${1:-}" = test ]; then
        on 60 "$machine" make test
        grep -e '^SKIPPED' -e '^FLAKY' -e '^FAILED' -e ' passed' "$room/said" || :
    fi
done
exit "$failed"
