#!/usr/bin/env bash
# mpi_train.sh - muonctl train on several ranks: the losses and weights of one process, and failures end.
#
# Environment: MUONCTL, the program under test; MPIRUN, the launcher.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${MUONCTL:?the path of muonctl}"
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

fail() {
    echo "FAILED $1" >&2
    failures=$((failures + 1))
}

# ranks N COMMAND...: on N ranks; no run may last longer than this.
ranks() {
    local n=$1
    shift
    if [ "$n" = 1 ]; then "$@"; else MPI_TIMEOUT=120 "$here/../mpi/run.sh" "$n" "$@"; fi
}

seq 1 3000 >text
train=("$MUONCTL" train --layers 2 --width 24 --context 16 --batch 12 --micro-batch 2 --steps 5
    --hidden 40 --validate-every 2 --validate-with 10 --data text --sample 8 --threads 1)
models=("--model tiny --heads 2 --kv-heads 1"
    "--model moe --heads 2 --kv-heads 2 --experts 5 --expert-hidden 14")

losses() { grep -o '"\(validation_\)\?loss":[^,]*' "$1/metrics.jsonl"; }

# ---- the same bits, with --deterministic

# same NAME N OPTIONS...: the run of one process is in one/.
same() {
    local name="$1, $2 ranks" n=$2
    shift 2
    rm -rf many
    ranks "$n" "${train[@]}" --deterministic --out many "$@" >out 2>err || { fail "$name: $(cat err)" && return; }
    cmp one/params.safetensors many/params.safetensors || fail "$name: other weights"
    [ "$(losses one)" = "$(losses many)" ] || fail "$name: other losses"
    grep -q '^Muon writes:' out || fail "$name: no sample"
    [ "$(grep -c '^wrote' out)" = 4 ] || fail "$name: not printed once: $(cat out)"
    [ "$(grep -c '^step 1/5' err)" = 1 ] || fail "$name: progress not printed once: $(cat err)"
}

for model in "${models[@]}"; do
    rm -rf one
    # shellcheck disable=SC2086 # options are words
    "${train[@]}" --deterministic --out one $model >out 2>err || fail "one process: $(cat err)"
    # shellcheck disable=SC2086
    for mesh in 2:fsdp=2 4:fsdp=2,ep=2 4:replicate=2,ep=2; do
        same "$model --mesh ${mesh#*:}" "${mesh%%:*}" --mesh "${mesh#*:}" $model
    done
done

# ---- without it, the same but for rounding; no share needs to be even

rm -rf one many
"${train[@]}" --model tiny --heads 2 --kv-heads 1 --out one >out 2>&1
ranks 3 "${train[@]}" --model tiny --heads 2 --kv-heads 1 --out many >out 2>err || fail "3 ranks: $(cat err)"
paste <(losses one | cut -d: -f2) <(losses many | cut -d: -f2) |
    awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (!(d < 1e-5)) { print "loss", $1, $2; bad = 1 } }
        END { exit bad || NR < 8 }' || fail "3 ranks: losses differ"

# ---- saved on two ranks, and gone on from on one and on four

# goes_on NAME N OPTIONS...: from half/ck to the bits of one/.
goes_on() {
    local name="$1, saved on 2 ranks, on $2" n=$2
    shift 2
    rm -rf ck many
    cp -r half/ck ck
    ranks "$n" "${train[@]}" --deterministic --save ck --resume --out many "$@" >out 2>err ||
        { fail "$name: $(cat err)" && return; }
    [ "$(grep -c '^Muon: resumed after step 3, from ck/step-00000003' err)" = 1 ] ||
        fail "$name: not resumed once: $(cat err)"
    ! grep -q note err || fail "$name: $(grep note err)"
    cmp one/params.safetensors many/params.safetensors || fail "$name: other weights"
    [ "$(losses one | tail -4)" = "$(losses many)" ] || fail "$name: other losses"
    [ "$(echo ck/step*)" = "ck/step-00000003 ck/step-00000005" ] ||
        fail "$name: saved: $(ls ck)"
}

for model in "${models[@]}"; do
    rm -rf one half
    mkdir half
    # shellcheck disable=SC2086 # options are words
    "${train[@]}" --deterministic --out one $model >out 2>err || fail "one process: $(cat err)"
    # The last of its steps is taken away again, as if the run had been killed before it.
    # shellcheck disable=SC2086
    ranks 2 "${train[@]}" --deterministic --save half/ck --save-every 3 --save-async $model >out 2>err ||
        fail "saving on 2 ranks: $(cat err)"
    [ "$(grep -c '^saved step 5' err)" = 1 ] || fail "saving on 2 ranks: not shown once: $(cat err)"
    rm -r half/ck/step-00000005
    # shellcheck disable=SC2086
    {
        goes_on "$model" 1 $model
        goes_on "$model, offloaded" 2 $model --offload . --ram-budget 1M
        goes_on "$model" 4 $model
    }
done

# ---- failures: one message, and an end

# refused NAME TEXT N OPTIONS...
refused() {
    local name=$1 text=$2 n=$3
    shift 3
    rm -rf out.d
    if ranks "$n" "${train[@]}" --out out.d "$@" >log 2>err; then fail "$name: success"; fi
    [ "$(grep -c '^muonctl: ' err)" = 1 ] || fail "$name: not one message: $(cat err)"
    grep -qF -- "$text" err || fail "$name: no '$text' in: $(cat err)"
    [ ! -e out.d ] || fail "$name: there is an output"
}
small="--model tiny --heads 2 --kv-heads 1"
# shellcheck disable=SC2086
{
    refused "a mesh that does not fit" "fsdp 2 x ep 1 x replicate 1 are 2 ranks, but there are 3" \
        3 $small --mesh fsdp=2
    refused "ranks that cannot share the units" "8 units, which 3 ranks cannot share evenly" \
        3 $small --deterministic
}
# An option cannot be given twice: these have lines of their own.
if ranks 2 "${train[@]}" --model tiny --heads 2 --kv-heads 1 --out text/d >log 2>err; then
    fail "a directory in a file: success"
fi
[ "$(grep -c "cannot create the directory 'text/d'" err)" = 1 ] || fail "a directory in a file: $(cat err)"
echo "too little" >little
little=("${train[@]/#text/little}")
if ranks 2 "${little[@]}" --model tiny --heads 2 --kv-heads 1 >log 2>err; then fail "little text: success"; fi
[ "$(grep -c 'little: 11 bytes; with a context of 16 at least 34' err)" = 1 ] || fail "little text: $(cat err)"

# ---- one rank is interrupted: all end after the same step, and everything is there

cat >rank.sh <<'END'
#!/bin/sh
echo $$ >"pid.${OMPI_COMM_WORLD_RANK-${PMI_RANK-}}"
exec "$@"
END
chmod +x rank.sh
long=("${train[@]/#5/1000000}")
rm -rf many
ranks 2 ./rank.sh "${long[@]}" --model tiny --heads 2 --kv-heads 1 --out many --save stop >out 2>err &
job=$!
until [ -s many/metrics.jsonl ] || ! kill -0 $job 2>/dev/null; do sleep 0.1; done
kill -TERM "$(cat pid.1)"
wait $job
[ -s many/params.safetensors ] && [ -s many/report.html ] && grep -q '^wrote many/report.html' out ||
    fail "interrupted: $(cat out err)"
tail -1 many/metrics.jsonl | grep -q '"validation_loss"' || fail "interrupted: no validation at the end"
[ "$(ls stop | tail -1)" = "$(printf 'step-%08d' "$(grep -c . many/metrics.jsonl)")" ] ||
    fail "interrupted: its last step is not saved: $(ls stop)"

# ---- one rank is stopped: after --timeout the run ends and names it

rm -rf many pid.*
ranks 2 ./rank.sh "${long[@]}" --model tiny --heads 2 --kv-heads 1 --out many --timeout 2 >out 2>err &
job=$!
until [ -s many/metrics.jsonl ] || ! kill -0 $job 2>/dev/null; do sleep 0.1; done
kill -STOP "$(cat pid.1)"
if wait $job; then fail "a rank is stopped: success"; fi
grep -q '^muonctl: .*rank 1' err || fail "a rank is stopped: not named: $(cat err)"

[ $failures = 0 ] && echo ok
exit $((failures > 0))
