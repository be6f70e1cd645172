# Help comes from the tables that parse the options.
$ muonctl --help
Usage: muonctl COMMAND [ARGUMENTS]

The Muon optimizer on the command line.

Commands:
  ortho      orthogonalize the matrices of a safetensors file
  step       one optimizer step on weights and gradients in files
  explain    show what a config does to every tensor of a model
  plan       predict the cost of a step on many ranks, without running it
  train      train a language model on a text, on one rank or many
  ckpt       list, verify, compare and convert checkpoints
  bench      measure speed against the machine's own, and check the results

Options:
  --help     this text; after a command, its own help
  --version  the version of libmuon

Exit codes: 0 success, 1 the run failed, 2 the command line is wrong,
3 the step was skipped.

Example:
  muonctl ortho in.safetensors out.safetensors
$ muonctl -h | head -1
Usage: muonctl COMMAND [ARGUMENTS]
$ muonctl --version
muonctl 0.5.0
$ muonctl ortho --help
Usage: muonctl ortho IN OUT [--coefficients NAME] [--steps N]
       [--algorithm NAME] [--eps X] [--eps-mode NAME] [--normalization NAME]
       [--norm-scale X] [--threads N] [--backend NAME]

Orthogonalizes every tensor of IN with at least 2 dims by Newton-Schulz steps
and writes it to OUT with the same name and shape, as F32. The last two dims
are a matrix, and leading dims a batch of matrices. Tensors with fewer dims are
copied. A NaN or infinity is an error, and OUT is not written. Under mpirun or
srun the ranks share the matrices, and OUT is the same.

Options:
  --coefficients NAME   Newton-Schulz set: you, original, polar_express, cans,
                        deepseek_v4, polar_express_8, aol, cubic5 [default:
                        you]
  --steps N             Newton-Schulz steps; 0: as many as the set has
                        [default: 0]
  --algorithm NAME      how to compute the same steps: auto, standard,
                        symmetric or gram [default: auto]
  --eps X               keeps the norm of a matrix from being 0 [default: 1e-7]
  --eps-mode NAME       how ns_eps applies to the norm: relative, add, or clamp
                        (from below) [default: relative]
  --normalization NAME  norm that a matrix is divided by: frobenius, schatten4,
                        or aol (row by row) [default: frobenius]
  --norm-scale X        factor on that norm; 0: 1, or 1 + polar_safety for
                        polar_express [default: 0]
  --threads N           number of threads; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, cblas, or reference (slow)
                        [default: the fastest available]
  --help                this text

Example:
  muonctl ortho gradients.safetensors directions.safetensors --coefficients cans
$ muonctl step --help
Usage: muonctl step --config FILE --params FILE --grads FILE [--state DIR]
       [--max-logits FILE] --out DIR [--verbose] [--json] [--threads N]
       [--backend NAME]

Reads weights, gradients and the state after the previous step, takes one step
as the config says, and writes DIR/params.safetensors, the state as a
checkpoint in DIR/state and, if the config asks for bf16 copies,
DIR/copy.safetensors: all of them, or none if anything fails. Weights from
several files are written to files of the same names, with an index. A NaN or
infinity in a gradient skips the step: weights and state are written unchanged,
and the exit code is 3. Under mpirun or srun the ranks share the tensors and
the work, and the files have the same bytes.

Options:
  --config FILE         groups, rules and matrices as JSON; docs/config.md
  --params FILE         weights, F32 or BF16: a file, several separated by
                        commas, an index, or a folder with one
  --grads FILE          gradients with the same names, F32, BF16 or F16; files
                        as for --params
  --state DIR           the state before the step: a checkpoint, or a directory
                        of checkpoints, whose newest is read; the previous step
                        wrote it to state in its --out [default: zeros, the
                        first step]
  --max-logits FILE     for QK-clip: the largest attention logit of every head;
                        an F32 tensor [heads] for each layer, with the layer's
                        name
  --out DIR             directory for the results; created if needed
  --verbose             print the log of the library on standard error
  --json                print the result as one line of JSON
  --threads N           number of threads; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, cblas, or reference (slow)
                        [default: the fastest available]
  --help                this text

Example:
  muonctl step --config run.json --params w.safetensors --grads g.safetensors \
      --out step1
  muonctl step --config run.json --params step1/params.safetensors \
      --grads g2.safetensors --state step1/state --out step2
  muonctl step --config run.json --params model.safetensors.index.json \
      --grads g1.safetensors,g2.safetensors --out step1
$ muonctl explain --help
Usage: muonctl explain --config FILE --params FILE

Prints every parameter with its rule, its logical matrices, its learning-rate
factor and its owner, then the totals, the linear algebra library and the CPU.
Computes and writes nothing.

Options:
  --config FILE         groups, rules and matrices as JSON; docs/config.md
  --params FILE         weights; only names and shapes are read: a file,
                        several separated by commas, an index, or a folder with
                        one
  --help                this text

Example:
  muonctl explain --config run.json --params weights.safetensors
  muonctl explain --config run.json --params model.safetensors.index.json
$ muonctl ckpt --help
Usage: muonctl ckpt COMMAND [ARGUMENTS]

Works on checkpoints written by muon_save or 'muonctl train', and on plain
safetensors files where that makes sense. Files that are read are never
changed.

Commands:
  ls         list the checkpoints of a directory, complete or not
  verify     read everything and compare it with its checksums
  inspect    print settings, and statistics of every tensor
  diff       list the differences of two checkpoints or files
  convert    change the form (heavy_ball, ema) or dtype of momentum
  import     make a checkpoint from the state of another optimizer
  export     write a checkpoint's state for another optimizer

Options:
  --help     this text; after a command, its own help

Example:
  muonctl ckpt ls checkpoints
  muonctl ckpt diff checkpoints/step-00001000 checkpoints/step-00002000
  muonctl ckpt import state.safetensors checkpoints --from torch
$ muonctl ckpt ls --help
Usage: muonctl ckpt ls ROOT [--json]

Lists what is in ROOT: complete checkpoints with the number and size of their
tensors, damaged ones with what is wrong, and the remains of killed saves. A
checkpoint is 'abandoned' if the run went back behind it: it loaded an earlier
checkpoint and saved from there. If ROOT has no checkpoints, the roots one or
two levels below are named. Markers, file sizes and headers are checked;
'muonctl ckpt verify' also checks the contents of tensors.

Options:
  --json                print one line of JSON
  --help                this text

Example:
  muonctl ckpt ls checkpoints
$ muonctl ckpt verify --help
Usage: muonctl ckpt verify PATH [--all]

Checks the marker, the headers and every tensor of a checkpoint. PATH is a
checkpoint, or a root: then its newest, or with --all every one. Damaged
tensors are named, and the exit code is 1 if there is one. The last line says
how fast it read.

Options:
  --all                 every checkpoint of the root, not only the newest
  --help                this text

Example:
  muonctl ckpt verify checkpoints --all
  muonctl ckpt verify checkpoints/step-00001000
$ muonctl ckpt inspect --help
Usage: muonctl ckpt inspect PATH [PATTERN...] [--json]

Prints the settings of a checkpoint's groups and the caller's own entries, then
for each tensor: dtype, shape, the minimum, maximum, mean and root mean square
of its finite elements, the largest absolute value, the numbers of zeros, NaNs
and infinities, and the saved checksum. PATH is a checkpoint, a root (meaning
its newest complete checkpoint) or a safetensors file. PATTERNs are globs for
tensor names. A few MB of memory are enough for any tensor.

Options:
  --json                print one line of JSON
  --help                this text

Example:
  muonctl ckpt inspect checkpoints
  muonctl ckpt inspect checkpoints/step-00001000 '*.momentum_buffer' --json
$ muonctl ckpt diff --help
Usage: muonctl ckpt diff A B [PATTERN...] [--tolerance X] [--json]

Lists tensors that only one of the two has, that differ in shape or dtype, or
whose elements differ: how many, by how much at most, and relative to the
largest element; then the settings that differ. Groups are compared through
their parameters, so names and order of groups do not matter. A and B are
checkpoints, roots (meaning their newest complete checkpoint) or safetensors
files; settings are compared if both have them. With PATTERNs, which are globs
for tensor names, only those tensors are compared. The exit code is 0 if
nothing differs, and 1 otherwise.

Options:
  --tolerance X         tensors count as equal if no element differs by more
                        than X times the largest [default: 0]
  --json                print one line of JSON
  --help                this text

Example:
  muonctl ckpt diff checkpoints/step-00001000 other/step-00001000
  muonctl ckpt diff a.safetensors b.safetensors '*.exp_avg' --tolerance 1e-6
$ muonctl ckpt convert --help
Usage: muonctl ckpt convert IN OUT_ROOT [--momentum FORM]
       [--momentum-dtype TYPE] [--mu X]

Writes a checkpoint of the same step to the directory OUT_ROOT, with momentum
in the requested form and dtype. The buffer of heavy_ball is that of ema
divided by 1 - momentum of its group. Everything else is copied; IN, a
checkpoint or a root, does not change. Its checksums are checked first, so that
damage does not spread.

Options:
  --momentum FORM       the form to write: heavy_ball (M = mu M + G) or ema (M
                        = mu M + (1 - mu) G) [default: as it is]
  --momentum-dtype TYPE
                        the dtype to write: f32 or bf16 [default: as it is]
  --mu X                the momentum with which the buffers were made [default:
                        the group's momentum]
  --help                this text

Example:
  muonctl ckpt convert checkpoints/step-00001000 as-ema --momentum ema
  muonctl ckpt convert checkpoints small --momentum-dtype bf16
$ muonctl ckpt import --help
Usage: muonctl ckpt import FILE... OUT_ROOT --from PEER [--names LIST[,...]]
       [--step N] [--momentum FORM] [--momentum-dtype TYPE] [--mu X]
       [--ignore-unknown]

Reads the state of another Muon implementation, saved as safetensors, and
writes a checkpoint to the directory OUT_ROOT, with a group for Muon and one
for AdamW. Keys are PARAM.WORD, state.PARAM.WORD or optimizer.state.PARAM.WORD;
PARAM is a name, or a number with --names; WORD is momentum_buffer or momentum
(Muon), exp_avg or moment1 or momentum, exp_avg_sq or moment2 or variance
(AdamW), step or step_dev. Tensors that are not recognized are listed as an
error. Momentum keeps its form unless --momentum asks for the other; it is an
error if the metadata of a file say that it has another form than PEER's.

Options:
  --from PEER           where it comes from: torch, keller, moonlight,
                        megatron, dion, xtuner or motif; the settings are those
                        of that preset (docs/presets.md). Or muonctl, for a
                        state.safetensors of 'muonctl step' before 0.5.0, which
                        has its own settings
  --names LIST[,...]    files with the names of parameters, one per line or as
                        JSON, in the order of the optimizer: needed if keys
                        have numbers, as in torch's state_dict(); one for all
                        FILEs, or one for each
  --step N              the step of the checkpoint, and of parameters that have
                        none [default: muon.step in the files, or the largest
                        step of a parameter]
  --momentum FORM       the form to write: heavy_ball (M = mu M + G) or ema (M
                        = mu M + (1 - mu) G) [default: as it is]
  --momentum-dtype TYPE
                        the dtype to write: f32 or bf16 [default: as it is]
  --mu X                the run's momentum [default: the preset's]
  --ignore-unknown      omit tensors that are not recognized, instead of
                        failing
  --help                this text

Example:
  muonctl ckpt import muon.safetensors adamw.safetensors checkpoints --from torch \
      --names muon.txt,adamw.txt --step 1000
  muonctl ckpt import state.safetensors checkpoints --from keller \
      --momentum heavy_ball
$ muonctl ckpt export --help
Usage: muonctl ckpt export IN OUT.safetensors --to PEER [--names FILE]
       [--prefix TEXT] [--mu X]

Writes the state of a checkpoint as one safetensors file with the keys, and
momentum in the form, of another Muon implementation. Only AdamW has steps;
other implementations have none for Muon. The settings are in the file's
metadata. IN, a checkpoint or a root, does not change, and its checksums are
checked first. The whole state is held in memory.

Options:
  --to PEER             the target: torch, keller, moonlight, megatron, dion,
                        xtuner or motif
  --names FILE          names of parameters, one per line or as JSON, in the
                        order of the optimizer: keys then have numbers,
                        state.0.exp_avg, as in torch's state_dict(), and other
                        parameters are omitted
  --prefix TEXT         prefix of every key, such as optimizer.state. [default:
                        none, and state. with --names]
  --mu X                the momentum with which the buffers were made [default:
                        the group's momentum]
  --help                this text

Example:
  muonctl ckpt export checkpoints state.safetensors --to torch
  muonctl ckpt export checkpoints state.safetensors --to dion --prefix optimizer.state.
$ muonctl bench --help
Usage: muonctl bench [PROBLEM...] [--repeat N] [--min-time S] [--dir DIR]
       [--ram-budget SIZE] [--mesh AXES] [--ranks-per-node N] [--models FILE]
       [--table] [--list] [--threads N] [--backend NAME]

Runs each problem, alternating with the machine's own best: matrix products of
its BLAS at 2048 cubed, or loops over memory. Prints a line of JSON for each:
problem, seconds, rate (useful GFLOP/s or GB/s), peak (the machine's rate, null
if unknown), ratio, threads, unit, algorithm, best_of, verified, and the
hardware and software: cpu, backend, version, kernels. The timed results are
verified; a wrong one ends the run with exit code 1. Under mpirun, ranks:MODEL
compares a step on all ranks with the same step on one of them, save:MODEL a
checkpoint with a plain file of the same size, and offload:MODEL a step whose
state is in a file with one whose state is in memory. variants:MODEL compares a
step with each variant of 'muonctl train --list' with one of plain Muon.
plan:MODEL measures the machine, predicts a step for it as 'muonctl plan' does,
and measures the step. These five have their own keys. Without PROBLEM, a
standard list is run; --list prints it.

Options:
  --repeat N            minimum number of runs of each problem; the best one
                        counts [default: 7]
  --min-time S          minimum time for each problem, in seconds [default: 1]
  --dir DIR             directory for the files of save: and offload: [default:
                        /tmp]
  --ram-budget SIZE     offload: bytes of state in memory, such as 500M
                        [default: a quarter of the state]
  --mesh AXES           plan: sizes of the axes, as for 'muonctl plan'
                        [default: fsdp over all ranks]
  --ranks-per-node N    plan: ranks that share a node [default: 1]
  --models FILE         plan: read the shapes of models from FILE, as for
                        'muonctl plan'
  --table               print a table instead of JSON lines
  --list                print what PROBLEM can be
  --threads N           number of threads; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, cblas, or reference (slow)
                        [default: the fastest available]
  --help                this text

Example:
  muonctl bench ns:1024x4096 ns:64x192x512 adamw:50M step:gpt2-124m
  muonctl bench ns:1024x4096@coefficients=polar_express,algorithm=gram --table
  mpirun -n 2 muonctl bench ranks:gpt2-124m --threads 1
  mpirun -n 4 muonctl bench plan:gpt2-124m --mesh fsdp=2,tp=2 --threads 1 --table
  muonctl bench offload:gpt2-350m --dir /scratch --ram-budget 400M --table
$ muonctl bench --list
ns:[Bx]MxN[@name=value,...]  orthogonalize B matrices of M x N; names: coefficients, steps, algorithm ...
adamw:N                      AdamW on N elements (50M)
momentum:N                   momentum of N elements
update:N                     weights of N elements, given their update
norm:N                       finiteness and norm of a gradient of N elements
step:MODEL                   a whole step; models: gpt2-124m, gpt2-350m, gpt2-tiny, qwen3-30b-layer
ranks:MODEL                  the same on all ranks of mpirun, against one of them
save:MODEL                   a checkpoint, saved and loaded, against one plain file
offload:MODEL                a step with its state in a file, against memory
variants:MODEL               a step with each variant of Muon, against plain Muon
plan:MODEL                   a step on all ranks, against what 'muonctl plan' predicts

without PROBLEM: ns:768x2048 ns:1024x4096 ns:2048x2048 ns:4096x1024 ns:64x192x512 adamw:50M momentum:50M update:50M step:gpt2-124m

# Help wins over whatever else is on the line before it is complete.
$ muonctl step --threads 2 --help | head -1
Usage: muonctl step --config FILE --params FILE --grads FILE [--state DIR]
$ muonctl step -h | head -1
Usage: muonctl step --config FILE --params FILE --grads FILE [--state DIR]
