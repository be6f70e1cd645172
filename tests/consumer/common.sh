# common.sh - what run.sh and library.sh share; sourced. Leaves a scratch folder, $work, and the tools.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cmake=${CMAKE:-cmake} cc=${CC:-cc} cxx=${CXX:-c++} mpicc=${MPICC-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_CC=$cc MPICH_CC=$cc OMPI_CXX=$cxx MPICH_CXX=$cxx
ranks=("$here/../mpi/run.sh" 2)

fail() {
    echo "$*" >&2
    exit 1
}

# Says nothing unless it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "failed: $*"; }
}
