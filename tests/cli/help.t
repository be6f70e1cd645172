# Help comes from the tables that parse the options.
$ muonctl --help
Usage: muonctl COMMAND [ARGUMENTS]

The Muon optimizer on the command line.

Commands:
  ortho      orthogonalize the matrices of a safetensors file
  step       one optimizer step on weights and gradients in files
  explain    show what a config makes of every tensor of a file
  plan       show what a step would cost on many ranks, without them
  train      train a language model on a text, on one rank or many
  bench      measure speed against the machine's own, and check the results

Options:
  --help     this text; after a command, its own help
  --version  the version of libmuon

Exit codes: 0 done, 1 the run failed, 2 the command line is wrong.

Example:
  muonctl ortho in.safetensors out.safetensors
$ muonctl -h | head -1
Usage: muonctl COMMAND [ARGUMENTS]
$ muonctl --version
muonctl 0.2.0
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
                        deepseek_v4, custom [default: you]
  --steps N             Newton-Schulz steps; 0: as many as the set has
                        [default: 0]
  --algorithm NAME      same steps computed by auto, standard, symmetric or
                        gram [default: auto]
  --eps X               keeps the norm of a matrix from being 0 [default: 1e-7]
  --eps-mode NAME       ns_eps is relative to the norm, add (to it) or clamp
                        (from below) [default: relative]
  --threads N           threads to compute with; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, or reference (plain loops, slow)
                        [default: the fastest there is]
  --help                this text

Example:
  muonctl ortho gradients.safetensors directions.safetensors --coefficients cans
$ muonctl step --help
Usage: muonctl step --config FILE --params FILE --grads FILE [--state FILE]
       [--max-logits FILE] --out DIR [--verbose] [--json] [--threads N]
       [--backend NAME]

Reads weights, gradients and the state of the step before, does one step as the
config says, and writes DIR/params.safetensors, DIR/state.safetensors and, if
the config asks for bf16 copies, DIR/copy.safetensors: all of them, or none if
anything fails. A NaN or infinity in a gradient skips the step: weights and
state are written as they were, and the exit code is 0, because that is how
training goes on. Under mpirun or srun the ranks share the tensors and the
work, and the files have the same bytes.

Options:
  --config FILE         groups, rules and matrices as JSON; docs/config.md
  --params FILE         weights, F32 or BF16
  --grads FILE          gradients by the same names, F32 or BF16
  --state FILE          state.safetensors of the step before [default: zeros,
                        the first step]
  --max-logits FILE     for QK-clip: the largest attention logit of every head,
                        an F32 tensor [heads] for each layer, by the layer's
                        name
  --out DIR             directory for the results; created if needed
  --verbose             what the library logs, on standard error
  --json                print the result as one line of JSON
  --threads N           threads to compute with; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, or reference (plain loops, slow)
                        [default: the fastest there is]
  --help                this text

Example:
  muonctl step --config run.json --params w.safetensors --grads g.safetensors \
      --out step1
  muonctl step --config run.json --params step1/params.safetensors \
      --grads g2.safetensors --state step1/state.safetensors --out step2
$ muonctl explain --help
Usage: muonctl explain --config FILE --params FILE

Prints every parameter with its rule, its logical matrices, the factor on its
learning rate and its owner, then the totals. Nothing is computed and nothing
is written.

Options:
  --config FILE         groups, rules and matrices as JSON; docs/config.md
  --params FILE         weights; only names and shapes are read
  --help                this text

Example:
  muonctl explain --config run.json --params weights.safetensors
$ muonctl bench --help
Usage: muonctl bench [PROBLEM...] [--repeat N] [--min-time S] [--table]
       [--list] [--threads N] [--backend NAME]

Runs each problem in turns with the machine's own best: matrix products of BLIS
at 2048 cubed, or loops over memory. Prints a line of JSON for each: problem,
seconds, rate (useful GFLOP/s or GB/s), peak (the machine's rate, null if
unknown), ratio, threads, unit, algorithm, best_of, verified. What was timed is
verified; a wrong result ends the run with exit code 1. Under mpirun,
ranks:MODEL compares a step on all ranks with the same step on one of them.
Without PROBLEM a standard list is run; --list prints it.

Options:
  --repeat N            runs of each problem at least; the best one counts
                        [default: 7]
  --min-time S          seconds for each problem at least [default: 1]
  --table               a table instead of JSON lines
  --list                print what PROBLEM can be
  --threads N           threads to compute with; results do not depend on it
                        [default: as many as this process may use]
  --backend NAME        linear algebra: blis, or reference (plain loops, slow)
                        [default: the fastest there is]
  --help                this text

Example:
  muonctl bench ns:1024x4096 ns:64x192x512 adamw:50M step:gpt2-124m
  muonctl bench ns:1024x4096@coefficients=polar_express,algorithm=gram --table
  mpirun -n 2 muonctl bench ranks:gpt2-124m --threads 1
$ muonctl bench --list
ns:[Bx]MxN[@name=value,...]  orthogonalize B matrices of M x N; names: coefficients, steps, algorithm ...
adamw:N                      AdamW on N elements (50M)
momentum:N                   momentum of N elements
update:N                     weights of N elements, given their update
norm:N                       finiteness and norm of a gradient of N elements
step:MODEL                   a whole step; models: gpt2-124m, gpt2-350m, gpt2-tiny
ranks:MODEL                  the same on all ranks of mpirun, against one of them

without PROBLEM: ns:768x2048 ns:1024x4096 ns:2048x2048 ns:4096x1024 ns:64x192x512 adamw:50M momentum:50M update:50M step:gpt2-124m

# Help wins over whatever else is on the line before it is complete.
$ muonctl step --threads 2 --help | head -1
Usage: muonctl step --config FILE --params FILE --grads FILE [--state FILE]
$ muonctl step -h | head -1
Usage: muonctl step --config FILE --params FILE --grads FILE [--state FILE]
