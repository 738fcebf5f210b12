#!/bin/sh
# The engines' programs from package-lock.json beside this, into build/outside/. Nothing is done when they are there.
# What cannot be had is said in capitals, and its tests are skipped: that is no failure.
set -eu
cd "$(dirname "$0")"
target=../../build/outside
capitals() { printf '%s' "$*" | tr '[:lower:]' '[:upper:]'; }

if cmp -s package-lock.json "$target/installed.json"; then exit 0; fi
if ! command -v npm >/dev/null 2>&1; then
    printf '%s: apt-get install npm\n' "$(capitals 'no npm here, so the real programs of the engines are not tried')" >&2
    exit 0
fi
rm -rf "$target"
mkdir -p "$target"
cp package.json package-lock.json "$target/"
# Without their scripts: the binaries lie in packages of their own, and kingdom finds them there.
if timeout 300 npm --prefix "$target" ci --ignore-scripts --no-audit --no-fund --loglevel=error \
    --fetch-retries=1 --fetch-timeout=60000 >"$target/install.log" 2>&1 </dev/null; then
    cp package-lock.json "$target/installed.json"
else
    head -3 "$target/install.log" >&2
    rm -rf "$target/node_modules"
    printf '%s\n' "$(capitals 'npm could not install the programs of the engines, so they are not tried')" >&2
fi
