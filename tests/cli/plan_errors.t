$ muonctl plan
2> muonctl: plan: missing operand MODEL
2> try: muonctl plan --help
? 2
$ muonctl plan kimi-k3
2> muonctl: plan: no model or file 'kimi-k3'; --list prints the models
2> try: muonctl plan --help
? 2
$ muonctl plan lama3-8b
2> muonctl: plan: unknown model 'lama3-8b'; did you mean 'llama3-8b'?
2> try: muonctl plan --help
? 2
$ muonctl plan qwen3
2> muonctl: plan: 'qwen3' is ambiguous: 'qwen3-30b-a3b' or 'qwen3-235b-a22b'
2> try: muonctl plan --help
? 2
$ muonctl plan ''
2> muonctl: plan: no model or file ''; --list prints the models
2> try: muonctl plan --help
? 2
$ muonctl plan llama3-8b gpt2-124m
2> muonctl: plan: several MODELs must be files, but there is no 'llama3-8b'
2> try: muonctl plan --help
? 2

# The mesh.
$ muonctl plan gpt2-124m --mesh fdsp=4
2> muonctl: plan: --mesh: unknown axis 'fdsp'; axes: replicate, fsdp, ep, tp; did you mean 'fsdp'?
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh pp=4
2> muonctl: plan: --mesh: unknown axis 'pp'; axes: replicate, fsdp, ep, tp
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp
2> muonctl: plan: --mesh: 'fsdp' is not AXIS=SIZE
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=
2> muonctl: plan: --mesh: fsdp is '', must be a number 1..65536
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=0
2> muonctl: plan: --mesh: fsdp is '0', must be a number 1..65536
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=-4
2> muonctl: plan: --mesh: fsdp is '-4', must be a number 1..65536
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=4x
2> muonctl: plan: --mesh: fsdp is '4x', must be a number 1..65536
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=99999999999999999999
2> muonctl: plan: --mesh: fsdp is '99999999999999999999', must be a number 1..65536
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=4,
2> muonctl: plan: --mesh: '' is not AXIS=SIZE
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=4,ep=2,fsdp=2
2> muonctl: plan: --mesh: 'fsdp' is given twice
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=65536,ep=65536,tp=65536,replicate=65536
2> muonctl: plan: --mesh: 'fsdp=65536,ep=65536,tp=65536,replicate=65536' is more than 65536 ranks
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh fsdp=2 --mesh ep=2
2> muonctl: plan: option '--mesh' is given twice
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --mesh=
2> muonctl: plan: --mesh: the AXES is empty
2> try: muonctl plan --help
? 2

# The machine.
$ muonctl plan gpt2-124m --profile tpu
2> muonctl: plan: --profile: 'tpu' is unknown; known: cpu, gpu
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --wire f16
2> muonctl: plan: --wire: 'f16' is unknown; known: f32, bf16
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --flops 0
2> muonctl: plan: --flops: 0 is not in 1..1e+21
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --bandwidth -1
2> muonctl: plan: --bandwidth: -1 is not in 1..1e+21
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --node-bandwidth fast
2> muonctl: plan: --node-bandwidth: 'fast' is not a number
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --ranks-per-node 0
2> muonctl: plan: --ranks-per-node: 0 is not in 1..1e+06
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --in-flight 0
2> muonctl: plan: --in-flight: 0 is not in 1..1e+06
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --threads 0
2> muonctl: plan: --threads: 0 is not in 1..1024
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --budget 0
2> muonctl: plan: --budget: 0 is not in 1..1e+15
2> try: muonctl plan --help
? 2
$ muonctl plan gpt2-124m --json --params
2> muonctl: plan: --params cannot be combined with --json
2> try: muonctl plan --help
? 2

# Files that cannot be written are failed runs, and then nothing is printed.
$ muonctl plan gpt2-124m --html nowhere/plan.html
2> muonctl: plan: nowhere/plan.html: cannot be written: No such file or directory
? 1
$ muonctl plan gpt2-124m --html /dev/full
2> muonctl: plan: /dev/full: cannot be written: No space left on device
? 1
$ muonctl plan gpt2-124m --json >/dev/full
2> muonctl: plan: writing to standard output failed
? 1

# Files of models.
$ muonctl plan x --models absent.json
2> muonctl: plan: absent.json: cannot be opened: No such file or directory
? 1
$ models() { echo "$1" >m.json; muonctl plan x --models m.json; }
$ models '['
2> muonctl: plan: m.json: line 2, column 0: ']' expected near end of file
? 1
$ models '[]'
2> muonctl: plan: m.json: is a list, must be an object
? 1
$ models '{"x": 1}'
2> muonctl: plan: m.json: x: is a number, must be a list
? 1
$ models '{"x": [1]}'
2> muonctl: plan: m.json: x[0]: is a number, must be an object
? 1
$ models '{"x": []}'
2> muonctl: plan: there are no parameters
? 1
$ models '{"x": [{"rows": 1, "cols": 1}]}'
2> muonctl: plan: m.json: x[0]: the key 'name' is missing
? 1
$ models '{"x": [{"name": "q", "rows": "1", "cols": 1}]}'
2> muonctl: plan: m.json: x[0].rows: is a string, must be a whole number
? 1
$ models '{"x": [{"name": "q", "rows": 4, "cols": 0}]}'
2> muonctl: plan: m.json: x[0].cols: is 0, must be 1..100000000
? 1
$ models '{"x": [{"name": "q", "rows": 4, "cols": 4, "layers": 99999}]}'
2> muonctl: plan: m.json: x[0].layers: is 99999, must be 1..10000
? 1
$ models '{"x": [{"name": "q", "rows": 4, "cols": 4, "expert_matrices": -1}]}'
2> muonctl: plan: m.json: x[0].expert_matrices: is -1, must be 0..1000000
? 1
$ models '{"x": [{"name": "q", "rows": 4, "cols": 4, "tp": "col"}]}'
2> muonctl: plan: m.json: x[0].tp: 'col' is unknown; known: rows, cols, none; did you mean 'cols'?
? 1
$ models '{"x": [{"name": "q", "row": 4, "cols": 4}]}'
2> muonctl: plan: m.json: x[0].row: unknown key; did you mean 'rows'?
? 1
$ models '{"x": [{"name": "q", "rows": 4, "cols": 4}, {"name": "q", "rows": 4, "cols": 4}]}'
2> muonctl: plan: param 'layers.0.q' is given twice (a tied weight is one parameter)
? 1
$ models '{"x": [{"name": "q", "rows": 100000000, "cols": 100000000, "expert_matrices": 1000000}]}'
2> muonctl: plan: param 'layers.0.q': shape [100000000000000, 100000000]: the number of elements does not fit 64 bits
? 1
