# Wrong use is exit code 2, and says where to look.
$ muonctl
2> muonctl: a command is required
2> try: muonctl --help
? 2
$ muonctl stpe
2> muonctl: unknown command 'stpe'; did you mean 'step'?
2> try: muonctl --help
? 2
$ muonctl xyzzy
2> muonctl: unknown command 'xyzzy'
2> try: muonctl --help
? 2
$ muonctl --versoin
2> muonctl: unknown option '--versoin'
2> try: muonctl --help
? 2
$ muonctl step
2> muonctl: step: option '--config FILE' is required
2> try: muonctl step --help
? 2
$ muonctl step --config c.json --params p
2> muonctl: step: option '--grads FILE' is required
2> try: muonctl step --help
? 2
$ muonctl step --parms p
2> muonctl: step: unknown option '--parms'; did you mean '--params'?
2> try: muonctl step --help
? 2
$ muonctl step --config
2> muonctl: step: option '--config' needs a value: --config FILE
2> try: muonctl step --help
? 2
$ muonctl step --config --params p
2> muonctl: step: option '--config' needs a value: --config FILE
2> try: muonctl step --help
? 2
$ muonctl step --config=
2> muonctl: step: --config: the FILE is empty
2> try: muonctl step --help
? 2
$ muonctl step --config a --config b
2> muonctl: step: option '--config' is given twice
2> try: muonctl step --help
? 2
$ muonctl step --json=yes
2> muonctl: step: option '--json' takes no value
2> try: muonctl step --help
? 2
$ muonctl step -x
2> muonctl: step: unknown option '-x'
2> try: muonctl step --help
? 2
$ muonctl step stray --config c --params p --grads g --out o
2> muonctl: step: unexpected argument 'stray'
2> try: muonctl step --help
? 2
$ muonctl explain --config c --threads 2
2> muonctl: explain: unknown option '--threads'
2> try: muonctl explain --help
? 2
$ muonctl ortho
2> muonctl: ortho: missing operand IN
2> try: muonctl ortho --help
? 2
$ muonctl ortho in
2> muonctl: ortho: missing operand OUT
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out more
2> muonctl: ortho: unexpected argument 'more'
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --threads 0
2> muonctl: ortho: --threads: 0 is not in 1..1024
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --threads -1
2> muonctl: ortho: --threads: -1 is not in 1..1024
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --threads 2.5
2> muonctl: ortho: --threads: '2.5' is not a whole number
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --threads two
2> muonctl: ortho: --threads: 'two' is not a number
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --threads 1e9
2> muonctl: ortho: --threads: 1e9 is not in 1..1024
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --threads nan
2> muonctl: ortho: --threads: 'nan' is not a number
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --steps five
2> muonctl: ortho: --steps: ns_steps is 'five', must be an integer 0..64
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --steps 65
2> muonctl: ortho: --steps: ns_steps is 65, must be 0..64
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --eps -1
2> muonctl: ortho: --eps: ns_eps is -1, must be in [0, inf)
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --eps nan
2> muonctl: ortho: --eps: ns_eps is nan, must be in [0, inf)
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --coefficients yuo
2> muonctl: ortho: --coefficients: coefficients 'yuo' is unknown; known: you, original, polar_express, cans, deepseek_v4, polar_express_8, aol, cubic5; did you mean 'you'?
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --coefficients custom
2> muonctl: ortho: --coefficients: custom coefficients are a list, which only a config file can have
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --algorithm fast
2> muonctl: ortho: --algorithm: algorithm 'fast' is unknown; known: auto, standard, symmetric, gram
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --eps-mode sub
2> muonctl: ortho: --eps-mode: eps_mode 'sub' is unknown; known: relative, add, clamp
2> try: muonctl ortho --help
? 2
$ muonctl ortho in out --backend mkl
2> muonctl: ortho: --backend: backend 'mkl' is not one of: *reference (glob)
2> try: muonctl ortho --help
? 2
$ muonctl bench nss:4x4
2> muonctl: bench: unknown problem 'nss:4x4'; did you mean 'ns'?
2> try: muonctl bench --help
? 2
$ muonctl bench ns
2> muonctl: bench: 'ns' is incomplete: ns:[Bx]MxN[@name=value,...]
2> try: muonctl bench --help
? 2
$ muonctl bench ns:
2> muonctl: bench: 'ns:' is incomplete: ns:[Bx]MxN[@name=value,...]
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4
2> muonctl: bench: 'ns:4' is not ns:MxN or ns:BxMxN
2> try: muonctl bench --help
? 2
$ muonctl bench ns:0x4
2> muonctl: bench: 'ns:0x4' is not ns:MxN or ns:BxMxN
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4x4x4
2> muonctl: bench: 'ns:4x4x4x4' is not ns:MxN or ns:BxMxN
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x
2> muonctl: bench: 'ns:4x' is not ns:MxN or ns:BxMxN
2> try: muonctl bench --help
? 2
$ muonctl bench ns:-4x4
2> muonctl: bench: 'ns:-4x4' is not ns:MxN or ns:BxMxN
2> try: muonctl bench --help
? 2
$ muonctl bench ns:99999999x99999999
2> muonctl: bench: 'ns:99999999x99999999' is too large to be measured
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4@steps
2> muonctl: bench: '@steps' is not @name=value,name=value ...
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4@steps=a
2> muonctl: bench: ns_steps is 'a', must be an integer 0..64
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4@stps=5
2> muonctl: bench: group field 'stps' is unknown; known: rule, lr, weight_decay, clip, momentum, nesterov, momentum_form, momentum_dtype, lr_mode, lr_scale, coefficients, ns_steps, algorithm, ns_eps, eps_mode, normalization, norm_scale, polar_lower, polar_safety, polar_cushion, beta1, beta2, adam_eps, adam_eps_mode, decay_form, cautious_decay, bias_correction, equalize, adaptive, renormalize, second_moment, second_beta, second_eps, second_eps_mode, update_norm
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4@coefficients=yuo
2> muonctl: bench: coefficients 'yuo' is unknown; known: you, original, polar_express, cans, deepseek_v4, polar_express_8, aol, cubic5; did you mean 'you'?
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4@coefficients=custom
2> muonctl: bench: custom coefficients are a list, which only a config file can have
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4@steps=5,
2> muonctl: bench: '@steps=5,' is not @name=value,name=value ...
2> try: muonctl bench --help
? 2
$ muonctl bench adamw:many
2> muonctl: bench: 'many' is not a number of elements like 50M
2> try: muonctl bench --help
? 2
$ muonctl bench adamw:50Mx
2> muonctl: bench: '50Mx' is not a number of elements like 50M
2> try: muonctl bench --help
? 2
$ muonctl bench adamw:3
2> muonctl: bench: '3' is not a multiple of 1M up to 17179M
2> try: muonctl bench --help
? 2
$ muonctl bench adamw:-1M
2> muonctl: bench: '-1M' is not a multiple of 1M up to 17179M
2> try: muonctl bench --help
? 2
$ muonctl bench step:gpt3
2> muonctl: bench: unknown model 'gpt3'
2> try: muonctl bench --help
? 2
$ muonctl bench ns:4x4 --repeat 0
2> muonctl: bench: --repeat: 0 is not in 1..1000
2> try: muonctl bench --help
? 2

# Output that cannot be written is a failed run.
$ muonctl --help >/dev/full
2> muonctl: writing to standard output failed
? 1

# After "--" everything is an operand, and one that is never read is a failed run, not misuse.
$ muonctl ortho -- --in --out
2> muonctl: ortho: --in: cannot be opened: No such file or directory
? 1
