#!/usr/bin/env bash
# same_checksum.sh - a program prints the same line with "checksum" on 1, 2 and 3 ranks.
#
#   tests/mpi/same_checksum.sh PROGRAM [argument...]
set -uo pipefail
here=$(dirname "$0")
first=
for ranks in 1 2 3; do
    output=$("$here/run.sh" "$ranks" "$@") || exit 1
    echo "$output"
    line=$(grep checksum <<<"$output") || {
        echo "no checksum on $ranks ranks" >&2
        exit 1
    }
    [[ ${first:=$line} == "$line" ]] || {
        echo "another checksum on $ranks ranks: '$line', want '$first'" >&2
        exit 1
    }
done
