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
