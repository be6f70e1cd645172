# NaN or infinity in a gradient: nothing changes, everything is written, and the exit code says so.
$ tensors make p w:F32:4x6 v:F32:3x3 b:F32:5 && tensors make good w:F32:4x6 v:F32:3x3 b:F32:5
$ tensors make nan w:F32:4x6:nan v:F32:3x3 b:F32:5 && tensors make inf w:F32:4x6 v:F32:3x3:inf b:F32:5:inf
$ muonctl step --config $CONFIGS/minimal.json --params p --grads good --out a >log
$ muonctl step --config $CONFIGS/minimal.json --params a/params.safetensors --grads nan --state a/state --out b
skipped: NaN or infinity in the gradient of 'w'; weights and state are unchanged

wrote b/params.safetensors
wrote b/state
? 3
$ cmp a/params.safetensors b/params.safetensors && cmp a/state/latest/optimizer.safetensors b/state/latest/optimizer.safetensors
$ muonctl step --config $CONFIGS/minimal.json --params a/params.safetensors --grads inf --state a/state --out c
skipped: NaN or infinity in the gradient of 'v' and 1 more; weights and state are unchanged

wrote c/params.safetensors
wrote c/state
? 3
$ cmp a/params.safetensors c/params.safetensors && cmp a/state/latest/optimizer.safetensors c/state/latest/optimizer.safetensors
$ muonctl step --config $CONFIGS/minimal.json --params a/params.safetensors --grads inf --out d --json
{"applied":false,"skip":"nonfinite_grad","skip_param":"v","nonfinite_params":2,"missing_params":0,"grad_norm":null,* (glob)
? 3
$ tensors values d/state/latest/optimizer.safetensors w.step
0

# The norm of the gradients is above skip_norm; a norm that is given is believed.
$ echo '{"groups": {"muon": {}, "adamw": {}}, "skip_norm": 0.5}' >c.json
$ muonctl step --config c.json --params a/params.safetensors --grads good --state a/state --out e
skipped: the norm of the gradients is *, above 0.5; weights and state are unchanged (glob)

wrote e/params.safetensors
wrote e/state
? 3
$ cmp a/params.safetensors e/params.safetensors && tensors values e/state/latest/optimizer.safetensors w.step
1
$ muonctl step --config c.json --params a/params.safetensors --grads good --out e --json
{"applied":false,"skip":"grad_norm","skip_param":null,"nonfinite_params":0,"missing_params":0,* (glob)
? 3
$ echo '{"groups": {"muon": {}, "adamw": {}}, "skip_norm": 0.5, "grad_norm": 0.25}' >c.json
$ muonctl step --config c.json --params a/params.safetensors --grads good --out e --json
{"applied":true,"skip":"none","skip_param":null,"nonfinite_params":0,"missing_params":0,"grad_norm":0.25,* (glob)

# A result that nobody can read is a failure all the same.
$ muonctl step --config $CONFIGS/minimal.json --params a/params.safetensors --grads inf --out d --json >/dev/full
2> muonctl: step: writing to standard output failed
? 1
