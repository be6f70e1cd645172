#!/usr/bin/env bash
# recover.sh - examples/mpi_recover ends with the same checksum whether a rank was late or not.
#
#   tests/mpi/recover.sh RANKS PROGRAM
#
# Only the lines with a checksum are compared: UCX prints to standard output what it thinks of messages
# that nobody received.
set -uo pipefail
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/run.sh" "$@" "$work/on_time" 0 >"$work/want" && grep -q checksum "$work/want" || exit 1
"$here/run.sh" "$@" "$work/late" >"$work/got" 2>"$work/errors" || exit 1
cat "$work/errors" "$work/got"
grep -q 'rank 2 did not reach muon_step' "$work/errors" &&
    diff <(grep checksum "$work/want") <(grep checksum "$work/got")
