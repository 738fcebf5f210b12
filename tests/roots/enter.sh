#!/bin/sh
# enter.sh ROOT LOGS, in mount and PID namespaces of its own: makes ROOT the whole disk and runs its inside.py.
# pivot_root rather than chroot: as on a real machine, / is a mount point.
set -eu
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/logs"
mount --bind "$2" "$root/logs"
cd "$root"
pivot_root . .
umount -l .
exec /usr/bin/python3 /inside.py
