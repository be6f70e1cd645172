# Every mistake in a config is an error that says where it is.
$ tensors make p w:F32:12x8 experts.w:F32:12x8 emb.embed:F32:6x4 b:F32:8 && cp p g
$ try() { echo "$1" >c.json; muonctl step --config c.json --params p --grads g --out out >log; }

# What is fine.
$ try '{}'
$ try '{"preset": "torch", "groups": {"muon": {"lr": 1e-2, "nesterov": false, "ns_steps": 4}}}'

# JSON itself.
$ try '{"clip_norm": }'
2> muonctl: step: c.json: line 1, column 15: unexpected token near '}'
? 1
$ try '{"clip_norm": 1, "clip_norm": 2}'
2> muonctl: step: c.json: line 1, column 28: duplicate object key near '"clip_norm"'
? 1
$ try '[]'
2> muonctl: step: c.json: is a list, must be an object
? 1
$ try ''
2> muonctl: step: c.json: line 2, column 0: '[' or '{' expected near end of file
? 1
$ try '{"clip_norm": 1} x'
2> muonctl: step: c.json: line 1, column 18: end of file expected near 'x'
? 1
$ try '{"seed": 123456789012345678901234567890}'
2> muonctl: step: c.json: line 1, column 39: too big integer
? 1
$ mkdir dir && muonctl explain --config dir --params p
2> muonctl: explain: dir: cannot be read: Is a directory
? 1

# Unknown keys, with the nearest known one.
$ try '{"clip_nrom": 1}'
2> muonctl: step: c.json: clip_nrom: unknown key; did you mean 'clip_norm'?
? 1
$ try '{"xyzzy": 1}'
2> muonctl: step: c.json: xyzzy: unknown key
? 1
$ try '{"groups": {"muon": {"lrr": 1}}}'
2> muonctl: step: c.json: groups.muon.lrr: unknown key; did you mean 'lr'?
? 1
$ try '{"groups": {"muon": {"coeff": "you"}}}'
2> muonctl: step: c.json: groups.muon.coeff: unknown key; did you mean 'coefficients'?
? 1
$ try '{"groups": {"muon": {"weight-decay": 0}}}'
2> muonctl: step: c.json: groups.muon.weight-decay: unknown key; did you mean 'weight_decay'?
? 1
$ try '{"params": [{"match": "*", "matrix": "rows / 2"}]}'
2> muonctl: step: c.json: params[0].matrix: unknown key
? 1
$ try '{"params": [{"match": "*"}, {"matches": "*"}]}'
2> muonctl: step: c.json: params[1].matches: unknown key; did you mean 'match'?
? 1
$ try '{"classify": {"experts": ["*"]}}'
2> muonctl: step: c.json: classify.experts: unknown key; did you mean 'expert'?
? 1
$ try '{"qk_clip": {"treshold": 1, "layers": []}}'
2> muonctl: step: c.json: qk_clip.treshold: unknown key; did you mean 'threshold'?
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "w", "k": "w", "heads": 2, "headdim": 2}]}}'
2> muonctl: step: c.json: qk_clip.layers[0].headdim: unknown key; did you mean 'head_dim'?
? 1

# Wrong types.
$ try '{"clip_norm": "1"}'
2> muonctl: step: c.json: clip_norm: is a string, must be a number
? 1
$ try '{"clip_norm": true}'
2> muonctl: step: c.json: clip_norm: is true or false, must be a number
? 1
$ try '{"seed": -1}'
2> muonctl: step: c.json: seed: is -1, must be 0..9223372036854775807
? 1
$ try '{"seed": 1.5}'
2> muonctl: step: c.json: seed: is a number, must be a whole number
? 1
$ try '{"wire": 16}'
2> muonctl: step: c.json: wire: is a number, must be a string
? 1
$ try '{"wire": "f16"}'
2> muonctl: step: c.json: wire: 'f16' is unknown; known: f32, bf16; did you mean 'bf16'?
? 1
$ try '{"allow_no_muon": 1}'
2> muonctl: step: c.json: allow_no_muon: is a number, must be true or false
? 1
$ try '{"missing_grad": "skp"}'
2> muonctl: step: c.json: missing_grad: 'skp' is unknown; known: error, skip; did you mean 'skip'?
? 1
$ try '{"groups": []}'
2> muonctl: step: c.json: groups: is a list, must be an object
? 1
$ try '{"groups": {"muon": 1}}'
2> muonctl: step: c.json: groups.muon: is a number, must be an object
? 1
$ try '{"groups": {"muon": {"lr": "0.02"}}}'
2> muonctl: step: c.json: groups.muon.lr: "0.02" must be written without quotes
? 1
$ try '{"groups": {"muon": {"lr": true}}}'
2> muonctl: step: c.json: groups.muon.lr: lr is 'true', must be a number
? 1
$ try '{"groups": {"muon": {"lr": [1]}}}'
2> muonctl: step: c.json: groups.muon.lr: is a list, must be a number, a string, true or false
? 1
$ try '{"groups": {"muon": {"nesterov": "true"}}}'
2> muonctl: step: c.json: groups.muon.nesterov: "true" must be written without quotes
? 1
$ try '{"groups": {"muon": {"nesterov": 2}}}'
2> muonctl: step: c.json: groups.muon.nesterov: nesterov is '2', must be true or false
? 1
$ try '{"groups": {"muon": {"coefficients": 5}}}'
2> muonctl: step: c.json: groups.muon.coefficients: coefficients '5' is unknown; known: you, original, polar_express, cans, deepseek_v4, custom, polar_express_8, aol, cubic5
? 1
$ try '{"groups": {"muon": {"like": 5}}}'
2> muonctl: step: c.json: groups.muon.like: is a number, must be a string
? 1
$ try '{"params": {}}'
2> muonctl: step: c.json: params: is an object, must be a list
? 1
$ try '{"params": [{"match": 5}]}'
2> muonctl: step: c.json: params[0].match: is a number, must be a list of strings
? 1
$ try '{"params": [{"match": ["w", 5]}]}'
2> muonctl: step: c.json: params[0].match[1]: is a number, must be a string
? 1
$ try '{"params": [{"match": ""}]}'
2> muonctl: step: c.json: params[0].match: is empty
? 1
$ try '{"params": [{"matrices": "rows / 2"}]}'
2> muonctl: step: c.json: params[0]: the key 'match' is missing
? 1
$ try '{"params": [{"match": "w", "expert": "yes"}]}'
2> muonctl: step: c.json: params[0].expert: is a string, must be true or false
? 1
$ try '{"params": [{"match": "w", "copy_dtype": "f32"}]}'
2> muonctl: step: c.json: params[0].copy_dtype: 'f32' is unknown; known: none, bf16
? 1
$ try '{"classify": {"adamw": 1}}'
2> muonctl: step: c.json: classify.adamw: is a number, must be a list of strings
? 1
$ try '{"qk_clip": {}}'
2> muonctl: step: c.json: qk_clip: the key 'layers' is missing
? 1
$ try '{"qk_clip": {"layers": {}}}'
2> muonctl: step: c.json: qk_clip.layers: must be a list of at least one layer
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "w", "k": "w", "heads": 2.5}]}}'
2> muonctl: step: c.json: qk_clip.layers[0].heads: is a number, must be a whole number
? 1

# Values that make no sense.
$ try '{"preset": "keler"}'
2> muonctl: step: c.json: preset: preset 'keler' is unknown; known: torch, keller, moonlight, megatron, dion, xtuner, motif, optax, deepseek_v4, normuon, nanochat, adaptive_muon; did you mean 'keller'?
? 1
$ try '{"groups": {"muon": {"preset": "keler"}}}'
2> muonctl: step: c.json: groups.muon.preset: preset 'keler' is unknown; known: torch, keller, moonlight, megatron, dion, xtuner, motif, optax, deepseek_v4, normuon, nanochat, adaptive_muon; did you mean 'keller'?
? 1
$ try '{"groups": {"muon": {"lr": -1}}}'
2> muonctl: step: c.json: groups.muon.lr: lr is -1, must be in [0, inf)
? 1
$ try '{"groups": {"muon": {"momentum": 1}}}'
2> muonctl: step: c.json: groups.muon.momentum: momentum is 1, must be in [0, 1)
? 1
$ try '{"groups": {"muon": {"ns_steps": 65}}}'
2> muonctl: step: c.json: groups.muon.ns_steps: ns_steps is 65, must be 0..64
? 1
$ try '{"groups": {"muon": {"coefficients": "yuo"}}}'
2> muonctl: step: c.json: groups.muon.coefficients: coefficients 'yuo' is unknown; known: you, original, polar_express, cans, deepseek_v4, custom, polar_express_8, aol, cubic5; did you mean 'you'?
? 1
$ try '{"groups": {"muon": {"coefficients": "custom"}}}'
2> muonctl: step: group 'muon': coefficients is custom, but the list custom is NULL
? 1
$ try '{"groups": {"muon": {"custom": []}}}'
2> muonctl: step: c.json: groups.muon.custom: must be a list of 1..64 triples [a, b, c]
? 1
$ try '{"groups": {"muon": {"custom": [[1, 2]]}}}'
2> muonctl: step: c.json: groups.muon.custom[0]: must be a triple [a, b, c]
? 1
$ try '{"groups": {"muon": {"custom": [[1, 2, "3"]]}}}'
2> muonctl: step: c.json: groups.muon.custom[0][2]: is a string, must be a number
? 1
$ try '{"groups": {"muon": {"coefficients": "you", "custom": [[1, 2, 3]]}}}'
2> muonctl: step: c.json: groups.muon.custom: is given, but coefficients is not "custom"
? 1
$ try '{"groups": {"a": {"like": "b"}, "b": {}}}'
2> muonctl: step: c.json: groups.a.like: unknown group 'b'
? 1
$ try '{"groups": {"a": {"rule": "sgd"}}}'
2> muonctl: step: c.json: groups.a.rule: rule 'sgd' is unknown; known: muon, adamw, frozen, lion
? 1
$ try '{"clip_norm": -1}'
2> muonctl: step: clip_norm is -1, must be finite and at least 0 (0: off)
? 1
$ try '{"skip_norm": -1}'
2> muonctl: step: skip_norm is -1, must be finite and at least 0 (0: off)
? 1
$ try '{"grad_norm": -2}'
2> muonctl: step: muon_step: grad_norm is -2, must be at least 0, or MUON_UNKNOWN (-1)
? 1
$ try '{"grad_scale": 0}'
2> muonctl: step: muon_step: grad_scale is 0, must be in [1.17549e-38, 3.40282e+38]
? 1
$ try '{"workspace_budget": 10}'
2> muonctl: step: workspace_budget is 10 bytes, but the largest matrix needs * (glob)
? 1
$ try '{"allow_no_muon": true, "classify": {"adamw": "*"}}'
$ try '{"classify": {"adamw": "*"}}'
2> muonctl: step: none of the 4 parameters is in a Muon group (set allow_no_muon if that is meant)
? 1

# Names that do not exist, patterns that match nothing, matrices that do not fit.
$ try '{"params": [{"match": "nothing.*", "group": "adamw"}]}'
2> muonctl: step: c.json: params[0].match: 'nothing.*' matches none of the 4 parameters
? 1
$ try '{"params": [{"match": ["w", "W"], "group": "adamw"}]}'
2> muonctl: step: c.json: params[0].match: 'W' matches none of the 4 parameters
? 1
$ try '{"params": [{"match": "w", "group": "amdaw"}]}'
2> muonctl: step: c.json: params[0].group: unknown group 'amdaw'; did you mean 'adamw'?
? 1
$ try '{"params": [{"match": "w", "matrices": "rows / 5"}]}'
2> muonctl: step: param 'w': matrices "rows / 5": 12 rows cannot be cut into 5 equal blocks (remainder 2)
? 1
$ try '{"params": [{"match": "w", "matrices": "rwos / 5"}]}'
2> muonctl: step: param 'w': matrices "rwos / 5": column 1: expected batch, flatten, rows, cols or transposed, found 'rwos'
? 1
$ try '{"params": [{"match": "w", "matrices": "rows 3*(4, 1)"}]}'
2> muonctl: step: param 'w': matrices "rows 3*(4, 1)": 3*(4, 1) = 15 rows, but the tensor has 12
? 1
$ try '{"params": [{"match": "b", "group": "muon"}]}'
2> muonctl: step: param 'b': a 1-D tensor of 8 elements has no matrix to orthogonalize: use an AdamW group
? 1
$ try '{"classify": {"expert": ["*.experts.*"]}}'
2> muonctl: step: c.json: classify: expert pattern '*.experts.*' matches none of the 4 parameters
? 1
$ try '{"classify": {"expert_group": "experts"}}'
2> muonctl: step: c.json: classify.expert_group: unknown group 'experts'
? 1
$ try '{"classify": {"frozen": ["b"]}}'
2> muonctl: step: gradients of frozen parameters: 'b'
? 1

# Attention layers.
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "q", "k": "w", "heads": 2, "head_dim": 2}]}}'
2> muonctl: step: c.json: qk_clip.layers[0].q: unknown parameter 'q'
? 1
$ try '{"qk_clip": {"layers": [{"name": "a{n}", "q": "l.{n}.q", "k": "l.{n}.k", "heads": 2}]}}'
2> muonctl: step: c.json: qk_clip.layers[0].q: 'l.{n}.q' matches none of the 4 parameters
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "l.{n}.q", "k": "l.{n}.k", "heads": 2}]}}'
2> muonctl: step: c.json: qk_clip.layers[0]: {n} must be in 'name', 'q' and 'k', once in each
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "w", "k": "experts.w", "heads": 0, "head_dim": 2}]}}'
2> muonctl: step: attention 'a': heads is 0, must be at least 1
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "w", "k": "experts.w", "heads": 4, "kv_heads": 3, "head_dim": 2}]}}'
2> muonctl: step: attention 'a': heads 4 is not a multiple of kv_heads 3
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "w", "k": "experts.w", "heads": 4, "head_dim": 4}]}}'
2> muonctl: step: attention 'a': q needs 16 rows, but param 'w' has 12
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "kind": "mqa", "q": "w", "k": "experts.w", "heads": 4, "head_dim": 2}]}}'
2> muonctl: step: c.json: qk_clip.layers[0].kind: 'mqa' is unknown; known: gqa, mla; did you mean 'gqa'?
? 1
$ try '{"qk_clip": {"threshold": 0, "layers": [{"name": "a", "q": "w", "k": "experts.w", "heads": 4, "head_dim": 2}]}}'
2> muonctl: step: qk_threshold is 0, must be finite and above 0
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "w", "k": "experts.w", "heads": 2, "head_dim": 2, "alpha": 1}]}}'
2> muonctl: step: attention 'a': alpha is 1, must be in (0, 1)
? 1
$ try '{"qk_clip": {"layers": [{"name": "a", "q": "w", "k": "experts.w", "heads": 2, "head_dim": 2}, {"name": "a", "q": "w", "k": "experts.w", "heads": 2, "head_dim": 2}]}}'
2> muonctl: step: c.json: qk_clip.layers: two layers are called 'a'
? 1
# Meshes and places of tensors, which one process checks although it does not need them.
$ try '{"meshes": {"m": {"axes": {"a": 1}}}, "params": [{"match": "w", "mesh": "m", "placement": "0: a"}]}'
$ try '{"meshes": {"m": {"axes": {"a": 2, "b": 3}}}, "params": [{"match": "*", "mesh": "m", "placement": "0: b, a"}]}'
2> muonctl: step: note: the config is for 6 ranks; this one process holds every tensor whole
$ try '{"meshes": []}'
2> muonctl: step: c.json: meshes: is a list, must be an object
? 1
$ try '{"meshes": {"m": 4}}'
2> muonctl: step: c.json: meshes.m: is a number, must be an object
? 1
$ try '{"meshes": {"m": {}}}'
2> muonctl: step: c.json: meshes.m: the key 'axes' is missing
? 1
$ try '{"meshes": {"m": {"axis": {"a": 2}}}}'
2> muonctl: step: c.json: meshes.m.axis: unknown key; did you mean 'axes'?
? 1
$ try '{"meshes": {"m": {"axes": ["a", 2]}}}'
2> muonctl: step: c.json: meshes.m.axes: is a list, must be an object
? 1
$ try '{"meshes": {"m": {"axes": {}}}}'
2> muonctl: step: c.json: meshes.m.axes: has 0 axes, must have 1..8
? 1
$ try '{"meshes": {"m": {"axes": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1}}}}'
2> muonctl: step: c.json: meshes.m.axes: has 9 axes, must have 1..8
? 1
$ try '{"meshes": {"m": {"axes": {"a": 0}}}}'
2> muonctl: step: c.json: meshes.m.axes.a: is 0, must be 1..1048576
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2.5}}}}'
2> muonctl: step: c.json: meshes.m.axes.a: is a number, must be a whole number
? 1
$ try '{"meshes": {"m": {"axes": {"a": 99999, "b": 99999, "c": 99999}}}}'
2> muonctl: step: c.json: meshes.m.axes.b: the axes make more than 1048576 ranks
? 1
$ try '{"meshes": {"m": {"axes": {"a,b": 2}}}}'
2> muonctl: step: mesh 'm': axis 'a,b': a name has no spaces, ',', ';' and ':'
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}, "ranks": 2}}}'
2> muonctl: step: c.json: meshes.m.ranks: is a number, must be a list
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}, "ranks": [0]}}}'
2> muonctl: step: c.json: meshes.m.ranks: has 1 ranks, but the axes make 2
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}, "ranks": [0, 0]}}}'
2> muonctl: step: mesh 'm': rank 0 is at ranks[0] and at ranks[1]
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}, "ranks": [0, -1]}}}'
2> muonctl: step: c.json: meshes.m.ranks[1]: is -1, must be 0..1048575
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}, "ranks": [0, "1"]}}}'
2> muonctl: step: c.json: meshes.m.ranks[1]: is a string, must be a whole number
? 1
$ try '{"meshes": {"all ranks": {"axes": {"a": 2}}}}'
2> muonctl: step: c.json: meshes.all ranks: a mesh of this name always exists
? 1
$ try '{"params": [{"match": "w", "mesh": "m"}]}'
2> muonctl: step: c.json: params[0].mesh: unknown mesh 'm'
? 1
$ try '{"meshes": {"main": {"axes": {"a": 2}}}, "params": [{"match": "w", "mesh": "mian"}]}'
2> muonctl: step: c.json: params[0].mesh: unknown mesh 'mian'; did you mean 'main'?
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}}}, "params": [{"match": "w", "mesh": "m", "placement": "0: b"}]}'
2> muonctl: step: param 'w': placement "0: b": column 4: mesh 'm' has no axis 'b', it has 'a'
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}}}, "params": [{"match": "w", "mesh": "m", "placement": "2: a"}]}'
2> muonctl: step: param 'w': placement "2: a": column 1: dim 2 does not exist, the tensor has 0..1
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}}}, "params": [{"match": "w", "mesh": "m", "placement": "a"}]}'
2> muonctl: step: param 'w': placement "a": column 1: expected a dim, found 'a'
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}}}, "params": [{"match": "w", "placement": "0: a"}]}'
2> muonctl: step: param 'w': placement "0: a" needs a mesh
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}}}, "params": [{"match": "w", "mesh": 1}]}'
2> muonctl: step: c.json: params[0].mesh: is a number, must be a string
? 1
$ try '{"meshes": {"m": {"axes": {"a": 2}}}, "params": [{"match": "w", "mesh": "m", "ranges": [[0, 0, 96]]}]}'
2> muonctl: step: c.json: params[0]: only one of 'mesh' with 'placement', 'boxes' and 'ranges' can say where a tensor is
? 1
$ try '{"params": [{"match": "w", "boxes": [[0, [0, 0], [12, 8]]], "ranges": [[0, 0, 96]]}]}'
2> muonctl: step: c.json: params[0]: only one of 'mesh' with 'placement', 'boxes' and 'ranges' can say where a tensor is
? 1
$ try '{"params": [{"match": "w", "boxes": []}]}'
2> muonctl: step: c.json: params[0].boxes: must be a list of at least one box
? 1
$ try '{"params": [{"match": "w", "boxes": [[0, 12, 8]]}]}'
2> muonctl: step: c.json: params[0].boxes[0][1]: must be a list of 1..8 whole numbers
? 1
$ try '{"params": [{"match": "w", "boxes": [[0, [0, 0]]]}]}'
2> muonctl: step: c.json: params[0].boxes[0]: must be [rank, [begin, ...], [end, ...]]
? 1
$ try '{"params": [{"match": "w", "boxes": [[0, [0, 0], [12]]]}]}'
2> muonctl: step: c.json: params[0].boxes[0][2]: has 1 dims, the one before has 2
? 1
$ try '{"params": [{"match": "*", "boxes": [[0, [0, 0], [12, 8]]]}]}'
2> muonctl: step: c.json: params[0].boxes: boxes of 2 dims, but 'b' has 1
? 1
$ try '{"params": [{"match": "w", "boxes": [[0, [0, 0], [12, 9]]]}]}'
2> muonctl: step: param 'w': boxes[0] is [0:12, 0:9], but dim 1 is 0:8
? 1
$ try '{"params": [{"match": "w", "boxes": [[0, [0, 0], [6, 8]], [1, [7, 0], [12, 8]]]}]}'
2> muonctl: step: param 'w': element [6, 0] is in none of the boxes
? 1
$ try '{"params": [{"match": "w", "boxes": [[0, [0, 0], [7, 8]], [1, [6, 0], [12, 8]]]}]}'
2> muonctl: step: param 'w': boxes[0], [0:7, 0:8] on rank 0, and boxes[1], [6:12, 0:8] on rank 1, overlap at [6, 0]
? 1
$ try '{"params": [{"match": "w", "ranges": {}}]}'
2> muonctl: step: c.json: params[0].ranges: must be a list of at least one range
? 1
$ try '{"params": [{"match": "w", "ranges": [0, 0, 96]}]}'
2> muonctl: step: c.json: params[0].ranges[0]: must be [rank, begin, end]
? 1
$ try '{"params": [{"match": "w", "ranges": [[0, 0, 95]]}]}'
2> muonctl: step: param 'w': element 95 is in none of the ranges
? 1
$ try '{"params": [{"match": "w", "ranges": [[0, 0, 97]]}]}'
2> muonctl: step: param 'w': ranges[0] is 0:97, but the flattened tensor's dim 0 is 0:96
? 1
$ try '{"params": [{"match": "w", "ranges": [[9999999, 0, 96]]}]}'
2> muonctl: step: c.json: params[0].ranges[0][0]: is 9999999, must be 0..1048575
? 1
$ try '{"machine": {"flop": 1}}'
2> muonctl: step: c.json: machine.flop: unknown key; did you mean 'flops'?
? 1
$ try '{"machine": {"flops": 0}}'
2> muonctl: step: machine.flops is 0, must be finite and above 0
? 1
$ try '{"machine": {"ranks_per_node": 0}}'
2> muonctl: step: machine.ranks_per_node is 0, must be at least 1
? 1
$ try '{"machine": {"processor_bandwidth": -1}}'
2> muonctl: step: machine.processor_bandwidth is -1, must be finite and at least 0
? 1
$ try '{"path": "refrence"}'
2> muonctl: step: c.json: path: 'refrence' is unknown; known: pipeline, reference; did you mean 'reference'?
? 1
$ try '{"in_flight": -1}'
2> muonctl: step: in_flight is -1, must not be negative
? 1
$ try '{"timeout": 0}'
2> muonctl: step: timeout is 0, must be finite and above 0 seconds
? 1

$ ls
c.json
dir
g
log
out
p
