# A checkpoint in two files. Experts of a layer become one tensor, in whatever file they are; what is
# not floating-point is frozen; more than 2 dims are a batch.
$ e=model.layers.0.mlp.experts
$ tensors make a.safetensors embed.weight:BF16:100x16 $e.0.up_proj.weight:BF16:8x16 $e.1.up_proj.weight:BF16:8x16 $e.10.up_proj.weight:BF16:8x16 q_proj.weight:F16:32x16 norm.weight:F32:16 ids:I64:4
$ tensors make b.safetensors $e.2.up_proj.weight:BF16:8x16 $e.2.down_proj.weight:BF16:16x8 stacked.experts:BF16:3x8x16 conv:F32:4x1x4 scale:F32:-
$ muonctl plan a.safetensors b.safetensors --mesh fsdp=2,ep=2 --params >text; sed -n '1p; 4p; /^parameter/,/^stacked/p' text | sed 's/gram .*/gram/'
a.safetensors and 1 more on 4 ranks: fsdp 2 x ep 2
matrices    9 in 4 tensors, 1.54 K parameters, 213 kflop per step
parameter                                      shape       rule           matrices     factor  algorithm  rank
ids                                            [4]         frozen
norm.weight                                    [16]        adamw
embed.weight                                   [100, 16]   adamw
model.layers.0.mlp.experts.*.up_proj.weight    [32, 16]    muon (expert)  4 x [8, 16]  0.8     gram
q_proj.weight                                  [32, 16]    muon           [32, 16]     1.131   gram
conv                                           [4, 1, 4]   adamw
scale                                          [1]         adamw
model.layers.0.mlp.experts.*.down_proj.weight  [16, 8]     muon (expert)  [16, 8]      0.8     gram
stacked.experts                                [3, 8, 16]  muon (expert)  3 x [8, 16]  0.8     gram
# One file alone: the name of a file in another directory is enough for the title.
$ mkdir dir && cp a.safetensors 'dir/a <&> b.safetensors' && muonctl plan 'dir/a <&> b.safetensors' --html p.html | head -1
a <&> b.safetensors on 1 rank
$ grep -o '"model":"[^"]*"' p.html
"model":"a \u003c&> b.safetensors"

# The same expert twice, the same tensor twice, no files, no matrices.
$ muonctl plan a.safetensors a.safetensors
2> muonctl: plan: tensor 'embed.weight' is in a.safetensors and in a.safetensors
? 1
$ tensors make twice.safetensors $e.2.up_proj.weight:BF16:8x16 $e.02.up_proj.weight:BF16:8x16 && muonctl plan twice.safetensors
2> muonctl: plan: expert 2 of 'model.layers.0.mlp.experts.*.up_proj.weight' appears twice
? 1
$ tensors make c.safetensors q_proj.weight:F32:4x4
$ muonctl plan a.safetensors c.safetensors
2> muonctl: plan: tensor 'q_proj.weight' is in a.safetensors and in c.safetensors
? 1
$ tensors make none.safetensors norm:F32:16
$ muonctl plan none.safetensors
2> muonctl: plan: none of the 1 parameters is in a Muon group (set allow_no_muon if that is meant)
? 1
$ muonctl plan absent.safetensors
2> muonctl: plan: absent.safetensors: cannot be opened: No such file or directory
? 1
$ muonctl plan ./absent
2> muonctl: plan: ./absent: cannot be opened: No such file or directory
? 1
$ echo text >text && muonctl plan text
2> muonctl: plan: text: 5 bytes are too few for a safetensors file
? 1
$ muonctl plan a.safetensors gone
2> muonctl: plan: several MODELs must be files, but there is no 'gone'
2> try: muonctl plan --help
? 2

# With a config: its groups and matrices. A mesh of the command line, or meshes of its own.
$ tensors make w.safetensors q.weight:F32:12x8 embed.weight:F32:10x8
$ echo '{"params": [{"match": "q.weight", "matrices": "rows / 3"}]}' >three.json
$ muonctl plan w.safetensors --config three.json --mesh fsdp=2 | sed -n '1p; 4p'
w.safetensors on 2 ranks: fsdp 2
matrices    3 in 1 tensor, 96 parameters, 4.99 kflop per step
$ echo '{"meshes": {"m": {"axes": {"x": 2, "y": 3}}}, "machine": {"flops": 1e12}, "params": [{"match": "*", "mesh": "m", "placement": "0: x"}]}' >meshes.json
$ muonctl plan w.safetensors --config meshes.json | head -2
w.safetensors on 6 ranks: x 2 x y 3
config profile: a rank computes 1.00 Tflop/s and sends 20.0 GB/s inside a node, 6.00 GB/s between nodes; f32 wire; 1 node of 8
$ muonctl plan w.safetensors --config meshes.json --json | grep -o '"mesh":{.*}},"machine":{[^}]*}'
"mesh":{"m":{"x":2,"y":3}},"machine":{"profile":"config","flops":1000000000000,"node_bandwidth":20000000000,"bandwidth":6000000000,"ranks_per_node":8,"latency":1e-5,"processor_bandwidth":0.0,"wire":"f32"}
$ muonctl plan w.safetensors --config meshes.json --mesh fsdp=2
2> muonctl: plan: --mesh: meshes.json already has meshes
2> try: muonctl plan --help
? 2
$ tensors make x.safetensors up.weight:F32:12x8
$ muonctl plan w.safetensors x.safetensors --config three.json --mesh fsdp=2 | sed -n '1p; 4p'
w.safetensors and 1 more on 2 ranks: fsdp 2
matrices    4 in 2 tensors, 192 parameters, 16.8 kflop per step
$ muonctl plan gpt2-124m --config three.json
2> muonctl: plan: --config: 'gpt2-124m' is a model, not a safetensors file
2> try: muonctl plan --help
? 2
$ muonctl plan w.safetensors --config absent.json
2> muonctl: plan: absent.json: cannot be opened: No such file or directory
? 1

# Matrices, tensors and parameters are Muon's everywhere: in the text, as JSON, in the list, in explain.
$ tensors make big.safetensors embed:F32:500x400 up:F32:600x400 experts.down:F32:2x500x200 norm:F32:400 ids:I64:9
$ echo '{"params": [{"match": "up", "matrices": "rows 200, 300, skip 100"}, {"match": "experts.down", "matrices": "batch 1", "expert": true}], "classify": {"frozen": "ids"}}' >big.json
$ muonctl plan big.safetensors --config big.json --mesh fsdp=2 | grep ^matrices | sed 's/, [^,]*$//'
matrices    4 in 2 tensors, 440 K parameters
$ muonctl plan big.safetensors --config big.json --mesh fsdp=2 --json | grep -o '"matrices":4,"tensors":2,"parameters":440000'
"matrices":4,"tensors":2,"parameters":440000
$ muonctl explain --config big.json --params big.safetensors | sed -n 's/,.* Gflop.*//; /^Muon/p; /^[0-9]/p'
Muon 0.44M (regular 0.24M, expert 0.20M), AdamW 0.20M, frozen 0.00M
4 matrices in 1 wave
$ for m in gpt2-124m glm-4.5-355b; do muonctl plan --list | awk -v m=$m '$1 == m { print "matrices    " $5 " in " $4 " tensors, " $2 " " $3 " parameters" }' >listed; muonctl plan $m | grep ^matrices | sed 's/, [^,]*$//' | diff listed -; done
