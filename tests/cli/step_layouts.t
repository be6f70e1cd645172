# Where tensors are changes no bit of the result.
$ tensors make p w:F32:12x8 c:F32:4x3x5 b:F32:7 e.embed:F32:10x6 h:BF16:9x4 && tensors make g w:F32:12x8:1,2,3,-4,5 c:F32:4x3x5 b:F32:7 e.embed:F32:10x6 h:F32:9x4
$ step() { echo "{\"params\": [{\"match\": \"c\", \"matrices\": \"batch 1\"}$1], \"clip_norm\": 1$2}" >c.json; muonctl step --config c.json --params one/params.safetensors --grads g --state one/state --out two >log; }
$ same() { cmp two/params.safetensors want/params.safetensors && cmp two/state/latest/optimizer.safetensors want/state/latest/optimizer.safetensors; }
$ echo '{"params": [{"match": "c", "matrices": "batch 1"}]}' >c.json && muonctl step --config c.json --params p --grads g --out one >log
$ step && mv two want

# On one rank: in boxes that follow each other in memory in another order, through all dims; in ranges.
$ step ', {"match": "w", "boxes": [[0, [6, 0], [12, 8]], [0, [0, 3], [6, 8]], [0, [0, 0], [6, 3]]]}' && same
$ step ', {"match": "c", "boxes": [[0, [2, 0, 0], [4, 3, 5]], [0, [0, 1, 1], [2, 3, 4]], [0, [0, 1, 0], [2, 3, 1]], [0, [0, 1, 4], [2, 3, 5]], [0, [0, 0, 0], [2, 1, 5]]]}' && same
$ step ', {"match": "b", "ranges": [[0, 3, 7], [0, 0, 3]]}, {"match": "h", "ranges": [[0, 5, 36], [0, 0, 5]]}, {"match": "e.embed", "ranges": [[0, 13, 60], [0, 0, 13]]}' && same
$ step '' ', "path": "reference"' && same
$ step '' ', "in_flight": 1, "timeout": 1, "machine": {"flops": 1e9, "ranks_per_node": 1}' && same

# A later rule overrides mesh and placement each alone, and boxes or ranges all of it.
$ step ', {"match": "*", "mesh": "m", "placement": "0: a"}, {"match": "w", "ranges": [[0, 9, 96], [0, 0, 9]]}, {"match": "b", "placement": ""}' ', "meshes": {"m": {"axes": {"a": 1}}}' && same

# A config for many ranks serves one process too.
$ tensors make p embed:F32:16x32 0.qkv.weight:F32:96x32 0.out.weight:F32:32x64 0.experts.up:F32:6x16x32 0.norm.weight:F32:32 lm_head:F32:16x32 && cp p g
$ muonctl step --config $CONFIGS/ranks.json --params p --grads g --out with >log
2> muonctl: step: note: the config is for 4 ranks; this one process holds every tensor whole
$ echo '{"groups": {"muon": {"lr": 0.02}, "adamw": {"lr": 0.0003}}, "params": [{"match": "*.qkv.weight", "matrices": "rows 64, 16, 16"}, {"match": "*.experts.*", "matrices": "batch 1"}], "clip_norm": 1.0}' >c.json
$ muonctl step --config c.json --params p --grads g --out without >log
$ cmp with/params.safetensors without/params.safetensors && cmp with/state/latest/optimizer.safetensors without/state/latest/optimizer.safetensors
