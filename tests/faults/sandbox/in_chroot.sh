#!/bin/sh
# in_chroot.sh ROOT FOLDER… -- COMMAND…: run a command in a root that is no mount point, as root, in mounts that are
# shared among all who look at them. ROOT is a plain folder, which gets the machine's folders but /tmp, and each FOLDER.
# It fails when the command leaves a mount behind that others see.
set -eu
[ -n "${KINGDOM_OWN_VIEW:-}" ] || exec env KINGDOM_OWN_VIEW=1 unshare --mount --propagation private "$0" "$@"
root=$1
shift
mount --make-rshared /
for folder in /*/; do
    folder=${folder%/}
    [ "$folder" != /tmp ] || continue
    if [ -L "$folder" ]; then
        ln -s "$(readlink "$folder")" "$root$folder"
    else
        mkdir "$root$folder" && mount --rbind "$folder" "$root$folder"
    fi
done
mkdir -m 1777 "$root/tmp"
while [ "$1" != -- ]; do
    [ -e "$root$1" ] || { mkdir -p "$root$1" && mount --bind "$1" "$root$1"; }
    shift
done
shift
# Those of other tests may go meanwhile: a folder that is removed elsewhere takes its mounts along here, too.
mounts() { awk '{ print $1, $5 }' /proc/self/mountinfo | sort; }
before=$(mounts)
code=0
chroot "$root" env -u KINGDOM_OWN_VIEW "$@" || code=$?
[ -z "$(mounts | grep -vxF "$before")" ] || { echo "a mount was left to all: $(mounts | grep -vxF "$before")" >&2; exit 1; }
exit "$code"
