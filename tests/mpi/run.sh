#!/usr/bin/env bash
# run.sh - runs a program on N ranks of this machine, under Open MPI or MPICH.
#
#   tests/mpi/run.sh N PROGRAM [argument...]
#
# From the environment: MPIRUN, the launcher (mpirun); MPI_TIMEOUT, seconds after which the job is killed
# and the exit code is 124 (300); MPI_OVER=tcp, for sockets instead of shared memory (Open MPI). Whatever happens, no process of the job outlives this script. More
# ranks than cores are fine, and each has one BLAS thread.
set -uo pipefail
(($# >= 2)) || {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
ranks=$1
shift
mpirun=${MPIRUN:-mpirun}
work=$(mktemp -d)

# Each process of the job has this in its environment; Open MPI gives every rank a process group of its
# own, so that a signal to one group would not reach them.
export MUON_MPI_JOB=$work

finish() {
    local environment pid
    export -n MUON_MPI_JOB
    for _ in 1 2; do # a process may have been born while we looked
        for environment in $(grep -lzsxF "MUON_MPI_JOB=$work" /proc/[0-9]*/environ); do
            pid=${environment#/proc/}
            kill -KILL "${pid%/environ}" 2>/dev/null
        done
    done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

export OMP_NUM_THREADS=1
# MPI keeps memory until the process ends, in libraries that are gone by then: no leak detection.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
case $("$mpirun" --version 2>&1) in
    *"Open MPI"* | *OpenRTE* | *PRRTE*)
        # Containers run as root, often cannot read another process's memory, and need no ssh for ranks
        # on their own machine. Session files go where they are removed with everything else.
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        export OMPI_MCA_plm_rsh_agent=false OMPI_MCA_orte_tmpdir_base=$work
        export OMPI_MCA_btl_vader_single_copy_mechanism=none
        # Open MPI 5 leaves the loopback out, unless it is told.
        [[ ${MPI_OVER:-} != tcp ]] || export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo
        launch=("$mpirun" --oversubscribe --bind-to none -n "$ranks")
        ;;
    *HYDRA* | *MPICH* | *Intel*)
        launch=("$mpirun" -bind-to none -n "$ranks")
        ;;
    *)
        echo "run.sh: '$mpirun' is neither Open MPI's nor MPICH's" >&2
        exit 2
        ;;
esac
limit=${MPI_TIMEOUT:-300} status=0
timeout --kill-after=10 "$limit" "${launch[@]}" "$@" </dev/null &
wait $! || status=$?
if ((status != 0 && SECONDS >= limit)); then
    echo "run.sh: no end after $limit s" >&2
    status=124
fi
exit $status
