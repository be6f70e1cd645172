# Variants are settings of a group, and their state is in the checkpoint.
$ echo '{"groups": {"muon": {"second_moment": "rows", "update_norm": "hyperball"}, "wide": {"like": "muon", "second_moment": "long_side"}, "whole": {"like": "muon", "second_moment": "matrix"}}, "params": [{"match": "b", "group": "wide"}, {"match": "c", "group": "whole"}]}' >c.json
$ tensors make p a:F32:8x12 b:F32:8x12 c:F32:8x12 && tensors make g a:F32:8x12 b:F32:8x12 c:F32:8x12
$ muonctl step --config c.json --params p --grads g --out one >log && muonctl step --config c.json --params one/params.safetensors --grads g --state one/state --out two >log
$ tensors show two/state/latest/optimizer.safetensors | grep second
a.second_moment F32 8
b.second_moment F32 12
c.second_moment F32 1
$ muonctl ckpt verify two/state/latest >log
$ muonctl ckpt export two/state out --to dion
2> muonctl: ckpt export: two/state/step-00000002: tensor 'a.second_moment' is state of a variant of Muon, which the format of dion does not have
? 1

# They cannot be combined in every way.
$ echo '{"groups": {"muon": {"second_moment": "elements", "update_norm": "hyperball"}}}' >c.json
$ muonctl step --config c.json --params p --grads g --out one >log
2> muonctl: step: group 'muon': update_norm is hyperball, but second_moment is elements, which changes the norm
? 1

# Momentum in 8 bits is two lists, whose scales follow another form of momentum.
$ echo '{"groups": {"muon": {"momentum_dtype": "i8"}}}' >c.json
$ muonctl step --config c.json --params p --grads g --out one >log && muonctl step --config c.json --params one/params.safetensors --grads g --state one/state --out two >log
$ tensors show two/state/latest/optimizer.safetensors | grep a.momentum
a.momentum_scales F32 1
a.momentum_codes I8 96
$ muonctl ckpt verify two/state/latest >log
$ muonctl ckpt convert two/state ema --momentum ema >log && muonctl ckpt convert ema back --momentum heavy_ball >log
$ muonctl ckpt diff two/state ema | grep ^a
a.momentum_scales: 1 of 1 elements differ, by * (glob)
$ muonctl ckpt convert two/state out --momentum-dtype bf16
2> muonctl: ckpt convert: two/state/step-00000002: 'a' has momentum in 8 bits, and cannot become BF16
? 1
$ muonctl ckpt convert two/state out --momentum-dtype i8
2> muonctl: ckpt convert: --momentum-dtype: i8 has a scale for parts of each matrix; only f32 and bf16 can be converted to
2> try: muonctl ckpt convert --help
? 2
$ muonctl ckpt export two/state out --to torch
2> muonctl: ckpt export: two/state/step-00000002: tensor 'a.momentum_scales' is momentum in 8 bits, which the format of torch does not have
? 1
