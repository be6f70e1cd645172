#!/usr/bin/env bash
# expect_death.sh - the job ends by itself, and not with success.
#
#   tests/mpi/expect_death.sh N PROGRAM [argument...]
#
# The arguments say how a rank dies. Without them none does, and the job must succeed.
set -uo pipefail
here=$(dirname "$0")
export MPI_TIMEOUT=60

"$here/run.sh" "$1" "$2" || {
    echo "the job fails when nobody dies: exit $?" >&2
    exit 1
}
"$here/run.sh" "$@" 2>/dev/null
status=$?
echo "exit $status"
((status != 0 && status != 124)) # 124: run.sh had to end it
