#!/usr/bin/env bash
# check_headers.sh - every public header compiles alone, as C11 and as C++11, without a warning.
#
#   tests/checks/check_headers.sh INCLUDE_DIR/muon/NAME.h... [-- OPTION...]
#
# Compilers from $CC and $CXX, or cc and c++; options are theirs (where mpi.h is).
set -euo pipefail
headers=()
while (($#)) && [[ $1 != -- ]]; do
    headers+=("$1")
    shift
done
(($# == 0)) || shift

failed=0
for header in "${headers[@]}"; do
    name=muon/${header##*/} include=${header%/muon/*}
    # Twice: the second time must be harmless.
    source=$(printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$name" "$name")
    for language in "${CC:-cc} -x c -std=c11" "${CXX:-c++} -x c++ -std=c++11"; do
        read -ra compile <<<"$language -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I$include"
        "${compile[@]}" "$@" - <<<"$source" || {
            echo "$name fails with ${compile[*]} $*" >&2
            failed=1
        }
    done
done
exit $failed
