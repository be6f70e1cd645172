# With lr 0 only QK-clip changes the weights, so that its factors can be read off: sqrt(100 / 400).
$ config() { echo '{"groups": {"muon": {"lr": 0}}, "qk_clip": {'$1'"layers": [{"name": "l{n}", "q": "l.{n}.q", "k": "l.{n}.k", "heads": 4, "kv_heads": 2, "head_dim": 1'$2'}]}}' >c.json; }
$ try() { muonctl step --config c.json --params p --grads p --max-logits l --out out | grep qk-clip; for t in l.0.q l.0.k l.1.q l.1.k; do tensors values out/params.safetensors $t; done; }
$ tensors make p l.0.q:F32:4x2:1 l.0.k:F32:2x2:1 l.1.q:F32:4x2:1 l.1.k:F32:2x2:1
$ tensors make l l0:F32:4:400 l1:F32:4:100
$ config; try
qk-clip        4 heads above 100, largest logit 400
0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5
0.5 0.5 0.5 0.5
1 1 1 1 1 1 1 1
1 1 1 1

# A kv head takes the smallest factor of its query heads; the rule "group" gives it to them too.
$ tensors make l l0:F32:4:400,200,100,90 l1:F32:4:100
$ config; try
qk-clip        2 heads above 100, largest logit 400
0.5 0.5 0.707107 0.707107 1 1 1 1
0.5 0.5 1 1
1 1 1 1 1 1 1 1
1 1 1 1
$ config '' ', "rule": "group"'; try
qk-clip        2 heads above 100, largest logit 400
0.5 0.5 0.5 0.5 1 1 1 1
0.5 0.5 1 1
1 1 1 1 1 1 1 1
1 1 1 1

# A threshold, another split, and looking without touching.
$ config '"threshold": 400, '; try
qk-clip        0 heads above 400, largest logit 400
1 1 1 1 1 1 1 1
1 1 1 1
1 1 1 1 1 1 1 1
1 1 1 1
$ config '' ', "alpha": 0.25'; try
qk-clip        2 heads above 100, largest logit 400
0.707107 0.707107 0.840896 0.840896 1 1 1 1
0.353553 0.353553 1 1
1 1 1 1 1 1 1 1
1 1 1 1
$ config '"log_only": true, '; try
qk-clip        2 heads above 100 (log only), largest logit 400
1 1 1 1 1 1 1 1
1 1 1 1
1 1 1 1 1 1 1 1
1 1 1 1

# Nothing to clip: zero, negative and NaN leave every bit alone.
$ tensors make l l0:F32:4:nan l1:F32:4:-1000
$ config; try
qk-clip        0 heads above 100, largest logit 1.5115
1 1 1 1 1 1 1 1
1 1 1 1
1 1 1 1 1 1 1 1
1 1 1 1
$ tensors make l l0:F32:4:0 l1:F32:4:100.5
$ try
qk-clip        4 heads above 100, largest logit 100.5
1 1 1 1 1 1 1 1
1 1 1 1
0.997509 0.997509 0.997509 0.997509 0.997509 0.997509 0.997509 0.997509
0.997509 0.997509 0.997509 0.997509

# Logits that do not fit the layers.
$ only() { muonctl step --config c.json --params p --grads p --max-logits l --out no >log; }
$ tensors make l l0:F32:4 && only
2> muonctl: step: max-logits: there is no tensor 'l1'
? 1
$ tensors make l l0:F32:4 l1:F32:4 l2:F32:4 && only
2> muonctl: step: max-logits: tensors without an attention layer in the config: 'l2'
? 1
$ tensors make l l0:F32:4 l1:F32:3 && only
2> muonctl: step: max-logits: 'l1' is F32 3, must be F32 4
? 1
$ tensors make l l0:F32:4 l1:BF16:4 && only
2> muonctl: step: max-logits: 'l1' is BF16 4, must be F32 4
? 1
$ tensors make l l0:F32:4 l1:F32:4x1 && only
2> muonctl: step: max-logits: 'l1' is F32 4x1, must be F32 4
? 1
$ test -e no
? 1

# Layers are found by number wherever {n} stands; a number of one tensor only is an error.
$ tensors make p l.0.q:F32:4x2:1 l.0.k:F32:2x2:1 l.7.q:F32:4x2:1 && muonctl explain --config c.json --params p
2> muonctl: explain: c.json: qk_clip.layers[0].k: unknown parameter 'l.7.k'; did you mean 'l.0.k'?
? 1
$ tensors make p l.x.q:F32:4x2:1 l.0.k:F32:2x2:1 && muonctl explain --config c.json --params p
2> muonctl: explain: c.json: qk_clip.layers[0].q: 'l.{n}.q' matches none of the 2 parameters
? 1
