# One step: same names, dtypes and shapes, and a state for every trainable tensor.
$ tensors make p w:F32:8x12 b:F32:12 emb.embed:F32:20x4 h:BF16:6x4
$ tensors make g w:F32:8x12 b:F32:12 emb.embed:F32:20x4 h:BF16:6x4
$ muonctl step --config $CONFIGS/minimal.json --params p --grads g --out one
applied
grad norm      14.6815
clip           1
update rms     0.0039* (glob)
matrices       2

phase           seconds    GFLOP/s       GB/s
check          0.* - * (glob)
momentum       0.* - * (glob)
ortho          0.* (glob)
update         0.* - * (glob)
adamw          0.* - * (glob)
step           0.* (glob)

wrote one/params.safetensors
wrote one/state
$ ls one
params.safetensors
state
$ tensors show one/params.safetensors
w F32 8x12
b F32 12
emb.embed F32 20x4
h BF16 6x4
$ tensors show one/state/latest/optimizer.safetensors
w.step I64 -
b.step I64 -
emb.embed.step I64 -
h.step I64 -
w.momentum_buffer F32 8x12
b.exp_avg F32 12
b.exp_avg_sq F32 12
emb.embed.exp_avg F32 20x4
emb.embed.exp_avg_sq F32 20x4
h.momentum_buffer F32 6x4
$ tensors metadata one/state/latest/optimizer.safetensors muon.group.0.lr
0.02
$ tensors values one/state/latest/optimizer.safetensors w.step
1

# Momentum of the first step is the gradient.
$ tensors make grad w:F32:8x12 && tensors values grad w >w && tensors values one/state/latest/optimizer.safetensors w.momentum_buffer | cmp - w

# AdamW's first step is lr times the sign of the gradient, after decay: 1 (1 - 0.0003 * 0.1) - 0.0003.
$ tensors make p1 w:F32:2x2:1 b:F32:3:1 && tensors make g1 w:F32:2x2:1 b:F32:3:5
$ muonctl step --config $CONFIGS/minimal.json --params p1 --grads g1 --out o1 >log
$ tensors values o1/params.safetensors b
0.99967 0.99967 0.99967

# As one line of JSON.
$ muonctl step --config $CONFIGS/minimal.json --params p --grads g --out json --json
{"applied":true,"skip":"none","skip_param":null,"nonfinite_params":0,"missing_params":0,"grad_norm":14.6815*,"clip_coef":1.0,"update_rms":0.0039*,"matrices":2,"clipped_heads":0,"max_logit":0.0,"ranks":1,"messages":0,"message_bytes":0,"threads":*,"seconds":*,"seconds_max":*,"seconds_min":*,"phases":{"check":{"seconds":*,"seconds_max":*,"seconds_min":*,"flops":0.0,"bytes":800.0},"momentum":{*},"gather":{*},"ortho":{*},"scatter":{*},"update":{*},"adamw":{*},"qk_clip":{*}}} (glob)

# The same bytes for any number of threads; defaults are defaults.
$ for n in 1 2 3; do muonctl step --config $CONFIGS/minimal.json --params p --grads g --out t$n --threads $n >log; cmp one/params.safetensors t$n/params.safetensors; cmp one/state/latest/optimizer.safetensors t$n/state/latest/optimizer.safetensors; done

# Resuming from files is the same as never stopping: --out may be where the input is, too.
$ tensors make g2 w:F32:8x12:0.5 b:F32:12 emb.embed:F32:20x4:-1 h:BF16:6x4:2
$ muonctl step --config $CONFIGS/minimal.json --params one/params.safetensors --grads g2 --state one/state --out two >log
$ tensors values two/state/latest/optimizer.safetensors w.step
2
$ muonctl ckpt ls one/state && muonctl ckpt ls two/state
checkpoint     tensors      bytes  state
step-00000001       10    1.25 kB  complete, latest
checkpoint     tensors      bytes  state
step-00000002       10    1.25 kB  complete, latest
$ muonctl step --config $CONFIGS/minimal.json --params one/params.safetensors --grads g2 --state one/state --out one >log
$ cmp one/params.safetensors two/params.safetensors && cmp one/state/latest/optimizer.safetensors two/state/latest/optimizer.safetensors
$ muonctl ckpt ls one/state
checkpoint     tensors      bytes  state
step-00000002       10    1.25 kB  complete, latest

# One checkpoint does, and so does one that has weights, too: --params takes them from there.
$ muonctl step --config $CONFIGS/minimal.json --params t1/params.safetensors --grads g2 --state t1/state/step-00000001 --out three >log
$ cmp three/params.safetensors two/params.safetensors
$ tensors save run 7 w:F32:8x12 w.momentum_buffer:F32:8x12 w.step:I64:-:7 && tensors make gw w:F32:8x12
$ muonctl step --config $CONFIGS/minimal.json --params run/latest --grads gw --state run --out after --json >log && ls after && muonctl ckpt ls after/state && muonctl ckpt ls run
params.safetensors
state
checkpoint     tensors      bytes  state
step-00000008        2      392 B  complete, latest
checkpoint     tensors      bytes  state
step-00000007        3      776 B  complete, latest

# Without the state it would not be the same.
$ muonctl step --config $CONFIGS/minimal.json --params t1/params.safetensors --grads g2 --out fresh >log
$ cmp -s fresh/params.safetensors two/params.safetensors
? 1

# A scalar is a parameter like any other.
$ tensors make p w:F32:2x3 s:F32:-:1 && tensors make g w:F32:2x3 s:F32:-:1
$ muonctl step --config $CONFIGS/minimal.json --params p --grads g --out scalar >log
$ tensors show scalar/params.safetensors
w F32 2x3
s F32 -
$ tensors values scalar/params.safetensors s
0.99967

# The library's log, for who asks.
$ muonctl step --config $CONFIGS/minimal.json --params p --grads g --out verbose --verbose >log
2> muonctl: step: note: created: 2 parameters, 1 matrices, * (glob)

# BF16 weights are rounded by chance, and the seed decides.
$ tensors make p w:BF16:40x60 && cp p g
$ for s in 1 1 2; do echo "{\"seed\": $s, \"groups\": {\"muon\": {\"lr\": 1e-4}}}" >c.json; muonctl step --config c.json --params p --grads g --out s$s >log; cksum <s$s/params.safetensors; done | sort | uniq -c | awk '{ print $1 }' | sort -n
1
2
