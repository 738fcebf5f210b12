#!/bin/sh
# What looks for obstacles on the page, from package-lock.json beside this, into build/web/. Nothing is done when it is there.
# What cannot be had is said in capitals, and its tests are skipped: that is no failure.
set -eu
cd "$(dirname "$0")"
target=../../build/web
if cmp -s package-lock.json "$target/installed.json"; then exit 0; fi
if ! command -v npm >/dev/null 2>&1; then
    echo 'NO NPM HERE, SO NOTHING LOOKS FOR OBSTACLES ON THE PAGE: apt-get install npm' >&2
    exit 0
fi
rm -rf "$target"
mkdir -p "$target"
cp package.json package-lock.json "$target/"
if timeout 120 npm --prefix "$target" ci --ignore-scripts --no-audit --no-fund --loglevel=error \
    --fetch-retries=1 --fetch-timeout=60000 >"$target/install.log" 2>&1 </dev/null; then
    cp package-lock.json "$target/installed.json"
else
    head -3 "$target/install.log" >&2
    echo 'NPM COULD NOT INSTALL AXE-CORE, SO NOTHING LOOKS FOR OBSTACLES ON THE PAGE' >&2
fi
