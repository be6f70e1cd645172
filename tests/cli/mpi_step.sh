#!/usr/bin/env bash
# mpi_step.sh - muonctl on several ranks: the files are those of one process, and failures end.
#
# Environment: MUONCTL and TENSORS, the programs under test; MPIRUN, the launcher.
set -u
here=$(cd "$(dirname "$0")" && pwd)
configs=$(cd "$here/../../examples/configs" && pwd)
: "${MUONCTL:?the path of muonctl}" "${TENSORS:?the path of tensors}"
export MUONCTL TENSORS
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failures=0

fail() {
    echo "FAILED $1" >&2
    failures=$((failures + 1))
}

# ranks N COMMAND...: on N ranks; no run may last longer than this.
ranks() { MPI_TIMEOUT=${limit:-120} "$here/../mpi/run.sh" "$@"; }
muonctl() { "$MUONCTL" "$@"; }
tensors() { "$TENSORS" "$@"; }

# steps DIR COMMAND...: two steps with the files params, grads and, if there is one, grads2. The second
# ends with the exit code $second_code.
second_code=0
steps() {
    local dir=$1 second=grads
    shift
    [ -e grads2 ] && second=grads2
    rm -rf "$dir.1" "$dir.2"
    "$@" --params params --grads grads --out "$dir.1" >out 2>err &&
        {
            "$@" --params "$dir.1/params.safetensors" --grads $second \
                --state "$dir.1/state" --out "$dir.2" >out 2>err
            [ $? = $second_code ]
        }
}

# same CASE "N ..." CONFIG [option...]: one process and N ranks give the same bytes.
same() {
    local case=$1 counts=$2 config=$3 n file name
    shift 3
    steps one muonctl step --config "$config" "$@" || { fail "$case: one: $(cat err)" && return; }
    for n in $counts; do
        name="$case, $n ranks"
        steps many ranks "$n" "$MUONCTL" step --config "$config" --threads 1 "$@" ||
            { fail "$name: $(cat err)" && continue; }
        [ "$(grep -c '^wrote' out)" = "$(ls many.2 | wc -l)" ] ||
            fail "$name: not printed once: $(cat out)"
        for file in one.?/*.safetensors one.?/state/latest/*.safetensors; do
            cmp "$file" "many${file#one}" || fail "$name: $file differs"
        done
    done
    rm -f grads2
}

# refused CASE TEXT COMMAND...: fails with TEXT in exactly one message, and writes nothing.
refused() {
    local name=$1 text=$2
    shift 2
    rm -rf out
    if "$@" >log 2>err; then fail "$name: success"; fi
    [ "$(grep -c '^muonctl: ' err)" = 1 ] || fail "$name: not one message: $(cat err)"
    grep -qF -- "$text" err || fail "$name: no '$text' in: $(cat err)"
    [ ! -e out ] || fail "$name: there is an output"
}

# ---- the same bytes

# No layout in the config: along the first dim, which may be shorter than there are ranks. A scalar,
# BF16 weights (stochastic rounding), a gradient of another dtype. The embedding is read in several bands.
tensors make params w:F32:8x12 b:F32:12 emb.embed:F32:3300x1000 h:BF16:6x4 t:F32:1x9 s:F32:-:1 n:F32:33x17
tensors make grads w:F32:8x12:1,-2,3 b:F32:12 emb.embed:F32:3300x1000 h:BF16:6x4 t:F32:1x9 s:F32:- n:BF16:33x17
same "no layout" "2 3 4" "$configs/minimal.json"

# Meshes: two of them, ranks in another order, columns, replicas, flat ranges.
tensors make params embed:F32:16x32 0.qkv.weight:F32:96x32 0.out.weight:F32:32x64 \
    0.experts.up:F32:6x16x32 0.norm.weight:F32:32 lm_head:F32:16x32
cp params grads
same "ranks.json" "4 5" "$configs/ranks.json"

# Experts, frozen tensors of any dtype, missing gradients.
tensors make params embed:F32:32x16 0.router.weight:F32:8x16 0.experts.gate_up:F32:256x16 \
    0.experts.down:F32:8x16x16 0.attn.weight:F32:16x16 0.rotary.inv_freq:F64:8 lm_head:F32:32x16
tensors make grads embed:F32:32x16 0.router.weight:F32:8x16 0.experts.gate_up:F32:256x16 \
    0.attn.weight:F32:16x16 lm_head:F32:32x16
tensors make grads2 embed:F32:32x16 0.experts.down:F32:8x16x16 0.attn.weight:F32:16x16:2,1
same "moe.json" "2 3" "$configs/moe.json"

# QK-clip, heads cut by the sharding. A NaN in the second step skips it.
layer() {
    echo "layers.$1.self_attn.q_b_proj.weight:F32:96x32 layers.$1.self_attn.kv_a_proj.weight:F32:32x64"
    echo "layers.$1.self_attn.kv_b_proj.weight:F32:128x24 layers.$1.self_attn.o_proj.weight:F32:64x64"
}
tensors make params embed:F32:8x64 $(layer 0) $(layer 1)
cp params grads
tensors make grads2 embed:F32:8x64:nan $(layer 0) $(layer 1)
tensors make logits layers.0:F32:4:50,300,20,1000 layers.1:F32:4:400
second_code=3
same "mla.json" "2 3 4" "$configs/mla.json" --max-logits logits
second_code=0
sed 's/"params": \[/"meshes": {"m": {"axes": {"replicate": 2, "tp": 2}}}, "path": "reference", &\
    {"match": "*", "mesh": "m", "placement": "0: tp"}, {"match": "*.o_proj.weight", "placement": "1: tp"},/' \
    "$configs/mla.json" >mla_mesh.json
same "mla.json on a mesh by the reference path" 4 mla_mesh.json --max-logits logits

# Copies, bf16 everywhere.
tensors make params embed:F32:8x16 w:F32:16x24 b:F32:16
tensors make grads embed:BF16:8x16 w:BF16:16x24 b:BF16:16
same "offload.json" "2 3" "$configs/offload.json"

# Boxes of a grid that no mesh makes, a rank without any part, one wave after the other.
cat >boxes.json <<'END'
{"params": [
    {"match": "w", "boxes": [[0, [0, 0], [5, 24]], [2, [5, 0], [16, 7]], [0, [5, 7], [16, 24]]]},
    {"match": "b", "ranges": [[2, 0, 3], [0, 3, 16], [0, 0, 3], [2, 3, 16]]}],
 "in_flight": 1, "workspace_budget": 100000}
END
tensors make params w:F32:16x24 b:F32:16 c:F32:3x5
cp params grads
same "boxes" 3 boxes.json

# Weights in several files, one tensor of them frozen.
tensors make a.safetensors w:F32:16x24 ids:I64:3
tensors make b.safetensors b:F32:16 c:F32:3x5
echo '{"classify": {"frozen": "ids"}}' >frozen.json
split=(step --config frozen.json --params a.safetensors,b.safetensors --grads params)
muonctl "${split[@]}" --out one.split >/dev/null
ranks 2 "$MUONCTL" "${split[@]}" --out many.split >/dev/null 2>err || fail "several files: $(cat err)"
diff -r one.split many.split || fail "several files: results differ"

# The result as JSON: one line, of all ranks.
ranks 2 "$MUONCTL" step --config "$configs/minimal.json" --params params --grads grads --out json \
    --json >line 2>/dev/null
[ "$(grep -c '"applied":true.*"ranks":2,"messages":[1-9].*"seconds_max":' line)/$(wc -l <line)" = 1/1 ] ||
    fail "json: $(cat line)"

# Matrices of a file, shared by the ranks.
tensors make many a:F32:8x12 b:F32:12 c:F32:7x5x4 d:BF16:6x4 e:F32:2x3x4 f:F32:0x4 s:F32:-
muonctl ortho many one.safetensors >/dev/null 2>&1
for n in 2 3; do
    ranks $n "$MUONCTL" ortho many $n.safetensors >/dev/null 2>err && cmp one.safetensors $n.safetensors ||
        fail "ortho, $n ranks: $(cat err)"
done

# ---- failures end all ranks with one message

tensors make params w:F32:16x24 b:F32:16
cp params grads
step=("$MUONCTL" step --config "$configs/minimal.json" --params params --out out --threads 1)

# rank K runs with other arguments than the others.
cat >odd.sh <<'END'
#!/bin/sh
rank=${OMPI_COMM_WORLD_RANK-${PMI_RANK-}}
odd=$1 usual=$2 unusual=$3
shift 3
[ "$rank" = "$odd" ] && usual=$unusual
[ "$usual" != exit ] || exit 3
exec "$@" $usual
END
chmod +x odd.sh
odd() { ranks 3 ./odd.sh "$@"; }

refused "a file that no rank can read" "step: none: cannot be opened" \
    ranks 3 "${step[@]}" --grads none
refused "a file that one rank cannot read" "step: rank 2: none: cannot be opened" \
    odd 2 "--grads grads" "--grads none" "${step[@]}"
refused "a backend that does not exist" "--backend: backend 'x'" \
    ranks 2 "${step[@]}" --grads grads --backend x
tensors make other w:F32:16x25 b:F32:16
refused "gradients of another model on one rank" "rank 1: gradient 'w': shape is 16x25" \
    odd 1 "--grads grads" "--grads other" "${step[@]}"
tensors save state 1 w.momentum_buffer:F32:16x24 w.step:I64:-:1 b.exp_avg:F32:15 b.exp_avg_sq:F32:16:1 b.step:I64:-:1
refused "a state of another model" "step: rank 0: state/step-00000001 does not fit this optimizer: misshapen" \
    ranks 2 "${step[@]}" --grads grads --state state
refused "a directory that cannot be made" "step: cannot create the directory 'out/none'" \
    ranks 2 "${step[@]/#out/out/none}" --grads grads
echo '{"groups": {"muon": {"lr": 0.5}}}' >lr.json
refused "a config of its own on one rank" "lr" \
    odd 1 "--config $configs/minimal.json" "--config lr.json" "$MUONCTL" step --params params \
    --grads grads --out out --threads 1
echo '{"meshes": {"dense": {"axes": {"fsdp": 4}}}}' >mesh.json
refused "a mesh of more ranks than there are" "mesh 'dense': the axes up to 'fsdp' make 4 ranks" \
    ranks 3 "$MUONCTL" step --config mesh.json --params params --grads grads --out out
tensors make bad c:F32:4x4x4:nan
refused "a NaN in the matrices of one rank" "rank 1: tensor 'c'" ranks 2 "$MUONCTL" ortho bad out
refused "a benchmark of no known model" "bench: unknown model 'none'" ranks 2 "$MUONCTL" bench ranks:none
refused "a plan of no known model" "none" ranks 2 "$MUONCTL" bench plan:none
refused "a plan for more ranks" "--mesh: 'fsdp=3' has 3 ranks, but there are 2" \
    ranks 2 "$MUONCTL" bench plan:gpt2-124m --mesh fsdp=3

# ---- a prediction, with the machine as it is: the numbers vary, what is printed does not
echo '{"toy": [{"name": "w", "layers": 3, "rows": 40, "cols": 24}]}' >toy.json
for mesh in 2:fsdp=2 3:replicate=3 4:fsdp=2,tp=2; do
    ranks "${mesh%%:*}" "$MUONCTL" bench plan:toy --models toy.json --mesh "${mesh#*:}" --repeat 1 --threads 1 >log 2>err ||
        fail "bench plan:toy on ${mesh#*:}: $(cat err)"
    grep -q '^{"problem":"plan:toy",.*"predicted":[0-9.e-]*,"seconds":[0-9.e-]*,"ratio":.*"median_of":1}$' log ||
        fail "bench plan:toy on ${mesh#*:}: $(cat log)"
done

# Some launchers do not notice, and the job has to be ended.
if limit=20 odd 1 "" "exit" "${step[@]}" --grads grads >log 2>err || [ -e out ]; then
    fail "a rank that is not muonctl: success"
fi

[ $failures = 0 ] && echo ok
exit $((failures > 0))
