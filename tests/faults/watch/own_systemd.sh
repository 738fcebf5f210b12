#!/bin/sh
# Become a systemd that is PID 1 of namespaces of its own and knows only a few targets: own_systemd.sh, under unshare.
# There /srv is an empty disk for a home, /tmp is nobody else's, and /etc/systemd/system is an empty folder for units.
set -eu
checkout=$(cd "$(dirname "$0")/../../.." && pwd)
mount --make-rprivate /
. "$checkout/tests/faults/reach.sh"
reach "$("$checkout/.venv/bin/python" -c 'import sys; print(sys.base_prefix)')"
mount -t tmpfs tmpfs /run
mkdir /run/lock /run/targets /run/units
for target in sysinit basic sockets timers paths slices network network-online local-fs multi-user shutdown umount; do
    cp "/lib/systemd/system/$target.target" /run/targets
done
mount --bind /run/targets /lib/systemd/system
mount --bind /run/units /etc/systemd/system
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=777 tmpfs /srv
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=basic.target
