# Help comes from the tables that parse the options.
$ muonctl --help
Usage: muonctl COMMAND [ARGUMENTS]

The Muon optimizer on the command line.

Commands:
  ortho      orthogonalize the matrices of a safetensors file
  step       one optimizer step on weights and gradients in files
  explain    show what a config makes of every tensor of a model
  plan       show what a step would cost on many ranks, without them
  train      train a language model on a text, on one rank or many
  ckpt       look at, check, compare and convert checkpoints
  bench      measure speed against the machine's own, and check the results

Options:
  --help     this text; after a command, its own help
  --version  the version of libmuon

Exit codes: 0 done, 1 the run failed, 2 the command line is wrong,
3 the step was skipped.

Example:
  muonctl ortho in.safetensors out.safetensors
$ muonctl -h | head -1
Usage: muonctl COMMAND [ARGUMENTS]
$ muonctl --version
muonctl 0.5.0
$ muonctl ortho --help
Usage: muonctl ortho IN OUT [--coefficients NAME] [--steps N]
       [--algorithm NAME] [--eps X] [--eps-mode NAME] [--threads N]
       [--backend NAME]

Every tensor of IN with at least 2 dims is orthogonalized by Newton-Schulz
steps and written to OUT under the same name and shape, as F32. The last two
dims are a matrix, leading dims a batch of them. Tensors with fewer dims are
copied. A NaN or infinity is an error, and then OUT is not written. Under
mpirun or srun the ranks share the matrices, and OUT is the same.

Options:
  --coefficients NAME   Newton-Schulz set: you, original, polar_express, cans,
                        deepseek_v4 [default: you]
  --steps N             Newton-Schulz steps; 0: as many as the set has
                        [default: 0]
  --algorithm NAME      same steps computed by auto, standard, symmetric or
                        gram [default: auto]
  --eps X               keeps the norm of a matrix from being 0 [default: 1e-7]
  --eps-mode NAME       ns_eps is relative to the norm, add (to it) or clamp
                        (from below) [default: relative]
  --threads N           threads to compute with; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, cblas, or reference (slow)
                        [default: the fastest there is]
  --help                this text

Example:
  muonctl ortho gradients.safetensors directions.safetensors --coefficients cans
$ muonctl step --help
Usage: muonctl step --config FILE --params FILE --grads FILE [--state DIR]
       [--max-logits FILE] --out DIR [--verbose] [--json] [--threads N]
       [--backend NAME]

Reads weights, gradients and the state of the step before, does one step as the
config says, and writes DIR/params.safetensors, the state as a checkpoint in
DIR/state and, if the config asks for bf16 copies, DIR/copy.safetensors: all of
them, or none if anything fails. Weights from several files are written to
files of the same names, with an index. A NaN or infinity in a gradient skips
the step: weights and state are written as they were, and the exit code is 3.
Under mpirun or srun the ranks share the tensors and the work, and the files
have the same bytes.

Options:
  --config FILE         groups, rules and matrices as JSON; docs/config.md
  --params FILE         weights, F32 or BF16: a file, several with commas
                        between them, an index, or a folder with one
  --grads FILE          gradients by the same names, F32 or BF16; as for
                        --params
  --state DIR           the state before the step: a checkpoint, or a directory
                        of checkpoints, of which the newest is read; the step
                        before has left it in state of its --out [default:
                        zeros, the first step]
  --max-logits FILE     for QK-clip: the largest attention logit of every head,
                        an F32 tensor [heads] for each layer, by the layer's
                        name
  --out DIR             directory for the results; created if needed
  --verbose             what the library logs, on standard error
  --json                print the result as one line of JSON
  --threads N           threads to compute with; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, cblas, or reference (slow)
                        [default: the fastest there is]
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

Prints every parameter with its rule, its logical matrices, the factor on its
learning rate and its owner, then the totals, and which library would compute
on which CPU. Nothing is computed and nothing is written.

Options:
  --config FILE         groups, rules and matrices as JSON; docs/config.md
  --params FILE         weights, of which only names and shapes are read: a
                        file, several with commas between them, an index, or a
                        folder with one
  --help                this text

Example:
  muonctl explain --config run.json --params weights.safetensors
  muonctl explain --config run.json --params model.safetensors.index.json
$ muonctl ckpt --help
Usage: muonctl ckpt COMMAND [ARGUMENTS]

Works on checkpoints that muon_save or 'muonctl train' wrote, and on plain
safetensors files where that makes sense. What is read is never changed.

Commands:
  ls         the checkpoints of a directory, complete or not
  verify     read everything and compare it with its checksums
  inspect    settings, and statistics of every tensor
  diff       in what two checkpoints or files differ
  convert    momentum in another form (heavy_ball, ema) or dtype
  import     the state of another optimizer becomes a checkpoint
  export     a checkpoint's state for another optimizer

Options:
  --help     this text; after a command, its own help

Example:
  muonctl ckpt ls checkpoints
  muonctl ckpt diff checkpoints/step-00001000 checkpoints/step-00002000
  muonctl ckpt import state.safetensors checkpoints --from torch
$ muonctl ckpt ls --help
Usage: muonctl ckpt ls ROOT [--json]

Lists what is in ROOT: complete checkpoints with the number and size of their
tensors, damaged ones with what is wrong, and what saves that were killed have
left behind. 'abandoned' is what a run went back behind: it loaded an earlier
checkpoint and has saved from there. If ROOT has nothing of that, it names the
roots that are one or two levels below. Markers, file sizes and headers are
checked; what tensors hold is not: that is 'muonctl ckpt verify'.

Options:
  --json                print one line of JSON
  --help                this text

Example:
  muonctl ckpt ls checkpoints
$ muonctl ckpt verify --help
Usage: muonctl ckpt verify PATH [--all]

Checks the marker, the headers and every tensor of a checkpoint. PATH is a
checkpoint, or a root: then its newest, or all of them. Every damaged tensor is
named; the exit code is 1 if there is one. At the end it says how fast it read.

Options:
  --all                 every checkpoint of the root, not only the newest
  --help                this text

Example:
  muonctl ckpt verify checkpoints --all
  muonctl ckpt verify checkpoints/step-00001000
$ muonctl ckpt inspect --help
Usage: muonctl ckpt inspect PATH [PATTERN...] [--json]

Prints the settings of a checkpoint's groups and the caller's own entries, then
for each tensor: dtype, shape, the least, largest, mean and root mean square of
its finite elements, the largest absolute value, the numbers of zeros, NaNs and
infinities, and the checksum that was saved. PATH is a checkpoint, a root (its
newest complete one is taken) or a safetensors file. PATTERNs are globs over
tensor names. Tensors are read in pieces: a few MB of memory are enough for
any.

Options:
  --json                print one line of JSON
  --help                this text

Example:
  muonctl ckpt inspect checkpoints
  muonctl ckpt inspect checkpoints/step-00001000 '*.momentum_buffer' --json
$ muonctl ckpt diff --help
Usage: muonctl ckpt diff A B [PATTERN...] [--tolerance X] [--json]

Lists tensors that only one of the two has, that have another shape or dtype,
or whose elements differ: how many, by how much at most, and how much that is
of the largest element; then the settings that differ. Groups are compared
through their parameters, so names and order of groups do not matter. A and B
are checkpoints, roots (the newest complete one is taken) or safetensors files;
settings are compared if both have them. With PATTERNs, globs over tensor
names, only those tensors are compared. The exit code is 0 if nothing differs,
and 1 if something does.

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

Writes a checkpoint of the same step to the directory OUT_ROOT, in which
momentum has the form and dtype that are asked for: the buffer of heavy_ball is
that of ema divided by 1 - momentum of its group. Everything else is copied;
IN, a checkpoint or a root, stays as it is. Its checksums are checked first, so
that damage is not carried on.

Options:
  --momentum FORM       momentum is to be heavy_ball (M = mu M + G) or ema (M =
                        mu M + (1 - mu) G) [default: as it is]
  --momentum-dtype TYPE
                        momentum is to be stored as f32 or bf16 [default: as it
                        is]
  --mu X                what momentum was when the buffers were made [default:
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
(AdamW), step or step_dev. What has no place is an error that lists it.
Momentum keeps the form of the peer unless --momentum asks for the other; a
file whose metadata say that it has another form is an error.

Options:
  --from PEER           whose it is: torch, keller, moonlight, megatron, dion,
                        xtuner or motif; settings are those of its preset
                        (docs/presets.md). Or muonctl, for a state.safetensors
                        of 'muonctl step' before 0.5.0, which has settings of
                        its own
  --names LIST[,...]    files with the names of parameters, one per line or as
                        JSON, in the order of the optimizer: needed where keys
                        have numbers, as those of torch's state_dict(); one for
                        all FILEs, or one for each
  --step N              the checkpoint's step, and that of parameters that have
                        none [default: the files' muon.step, or the most that a
                        parameter says]
  --momentum FORM       momentum is to be heavy_ball (M = mu M + G) or ema (M =
                        mu M + (1 - mu) G) [default: as it is]
  --momentum-dtype TYPE
                        momentum is to be stored as f32 or bf16 [default: as it
                        is]
  --mu X                the run's momentum [default: the preset's]
  --ignore-unknown      leave out tensors that have no place, instead of an
                        error
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
momentum in the form, of another Muon implementation. Steps are AdamW's; peers
have none for Muon. The settings are in the file's metadata. IN, a checkpoint
or a root, stays as it is, and its checksums are checked first. All of the
state is in memory once.

Options:
  --to PEER             for whom: torch, keller, moonlight, megatron, dion,
                        xtuner or motif
  --names FILE          names of parameters, one per line or as JSON, in the
                        order of the optimizer: keys have their numbers then,
                        state.0.exp_avg, as those of torch's state_dict(), and
                        other parameters are left out
  --prefix TEXT         what every key begins with, such as optimizer.state.
                        [default: none, and state. with --names]
  --mu X                what momentum was when the buffers were made [default:
                        the group's momentum]
  --help                this text

Example:
  muonctl ckpt export checkpoints state.safetensors --to torch
  muonctl ckpt export checkpoints state.safetensors --to dion --prefix optimizer.state.
$ muonctl bench --help
Usage: muonctl bench [PROBLEM...] [--repeat N] [--min-time S] [--dir DIR]
       [--ram-budget SIZE] [--table] [--list] [--threads N] [--backend NAME]

Runs each problem in turns with the machine's own best: matrix products of its
BLAS at 2048 cubed, or loops over memory. Prints a line of JSON for each:
problem, seconds, rate (useful GFLOP/s or GB/s), peak (the machine's rate, null
if unknown), ratio, threads, unit, algorithm, best_of, verified, and what
computed: cpu, backend, version, kernels. What was timed is verified; a wrong
result ends the run with exit code 1. Under mpirun, ranks:MODEL compares a step
on all ranks with the same step on one of them; save:MODEL compares a
checkpoint with a plain file of the same size, and offload:MODEL a step with
its state in a file with one in memory; these three have keys of their own.
Without PROBLEM a standard list is run; --list prints it.

Options:
  --repeat N            runs of each problem at least; the best one counts
                        [default: 7]
  --min-time S          seconds for each problem at least [default: 1]
  --dir DIR             where the files of save: and offload: are [default:
                        /tmp]
  --ram-budget SIZE     offload: bytes of state in memory, like 500M [default:
                        a quarter of the state]
  --table               a table instead of JSON lines
  --list                print what PROBLEM can be
  --threads N           threads to compute with; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, cblas, or reference (slow)
                        [default: the fastest there is]
  --help                this text

Example:
  muonctl bench ns:1024x4096 ns:64x192x512 adamw:50M step:gpt2-124m
  muonctl bench ns:1024x4096@coefficients=polar_express,algorithm=gram --table
  mpirun -n 2 muonctl bench ranks:gpt2-124m --threads 1
  muonctl bench offload:gpt2-350m --dir /scratch --ram-budget 400M --table
$ muonctl bench --list
ns:[Bx]MxN[@name=value,...]  orthogonalize B matrices of M x N; names: coefficients, steps, algorithm ...
adamw:N                      AdamW on N elements (50M)
momentum:N                   momentum of N elements
update:N                     weights of N elements, given their update
norm:N                       finiteness and norm of a gradient of N elements
step:MODEL                   a whole step; models: gpt2-124m, gpt2-350m, gpt2-tiny
ranks:MODEL                  the same on all ranks of mpirun, against one of them
save:MODEL                   a checkpoint, saved and loaded, against one plain file
offload:MODEL                a step with its state in a file, against memory

without PROBLEM: ns:768x2048 ns:1024x4096 ns:2048x2048 ns:4096x1024 ns:64x192x512 adamw:50M momentum:50M update:50M step:gpt2-124m

# Help wins over whatever else is on the line before it is complete.
$ muonctl step --threads 2 --help | head -1
Usage: muonctl step --config FILE --params FILE --grads FILE [--state DIR]
$ muonctl step -h | head -1
Usage: muonctl step --config FILE --params FILE --grads FILE [--state DIR]
