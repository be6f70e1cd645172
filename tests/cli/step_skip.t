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

# A result that nobody can read is a failure all the same.
$ muonctl step --config $CONFIGS/minimal.json --params a/params.safetensors --grads inf --out d --json >/dev/full
2> muonctl: step: writing to standard output failed
? 1
