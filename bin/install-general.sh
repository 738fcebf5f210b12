#!/bin/sh
# bin/install-general.sh DIR [--force]: as packages of other kingdoms install themselves. Installing always replaces.
for word do
    shift
    [ "$word" = --force ] || set -- "$@" "$word"
done
exec "${0%/*}/kingdom" generals install "$@"
