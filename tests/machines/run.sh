#!/bin/sh
# run.sh [test]: the newcomer's commands in a clean clone, as on a kernel without Landlock and as in a container.
# With `test` also `make test` in each. Its home is empty, its environment clean; nothing that it started is left.
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v cc >/dev/null 2>&1; then
    echo 'SKIPPED: NO C COMPILER HERE, SO NO OTHER MACHINES CAN BE PLAYED'
    exit 0
fi
room=$(mktemp -d /tmp/kd-machines-XXXXXX)
trap 'if [ -x bin/kingdom ]; then make -s down >"$room/said" 2>&1; fi; rm -rf "$room"' EXIT
cc -O2 -Wall -Wextra -Werror -o "$room/oldkernel" "$checkout/tests/machines/oldkernel.c"
git clone -q "$checkout" "$room/castle"
mkdir "$room/home"
cd "$room/castle"

# As a newcomer, whose machine is the one named first.
on() {
    machine=$1
    shift
    began=$(date +%s)
    code=0
    env -i HOME="$room/home" PATH="$PATH" LANG=C.UTF-8 TERM=dumb \
        "$room/oldkernel" "$machine" "$@" </dev/null >"$room/said" 2>&1 || code=$?
    echo "$machine: $*: exit $code after $(($(date +%s) - began)) s"
    [ "$code" = 0 ] || { tail -n 40 "$room/said"; failed=1; }
}

failed=0
bin/setup run
for machine in nolandlock container; do
    on "$machine" make up
    on "$machine" bin/kingdom say 'brief me'
    on "$machine" make demo
    grep -q 'not held here' "$room/said" || { echo "$machine: the demo does not say what is not held"; failed=1; }
    on "$machine" make down
    if [ "${1:-}" = test ]; then
        on "$machine" make test
        grep -e '^SKIPPED' -e '^mutants caught' -e '^FLAKY' -e ' passed' "$room/said" || :
    fi
done
exit "$failed"
