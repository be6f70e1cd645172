# The configs of examples/configs, each with a model it fits.

# minimal.json
$ tensors make p tok_embed:F32:32x16 w1:F32:64x16 w2:F32:16x64 norm:F32:16 lm_head:F32:32x16 && cp p g
$ muonctl explain --config $CONFIGS/minimal.json --params p
parameter  shape     rule   matrices  factor  algorithm  rank
tok_embed  [32, 16]  adamw
w1         [64, 16]  muon   [64, 16]  1.6     gram       0
w2         [16, 64]  muon   [16, 64]  1.6     gram       0
norm       [16]      adamw
lm_head    [32, 16]  adamw

Muon 0.00M (regular 0.00M, expert 0.00M), AdamW 0.00M, frozen 0.00M
* matrices in 1 wave, * Gflop per step, state * MB, workspace * MB (glob)
plan * (glob)
cpu      * (glob)
backend  * (glob)
$ muonctl step --config $CONFIGS/minimal.json --params p --grads g --out minimal >log

# moonlight.json: fused Q, K, V and gate, up; clipping; no weight decay on norms and biases.
$ tensors make p tok_embed.weight:F32:32x32 0.attn.qkv.weight:F32:96x32 0.attn.out.weight:F32:32x64 0.mlp.gate_up.weight:F32:128x32 0.mlp.down.weight:F32:32x64 0.norm.weight:F32:32 0.attn.out.bias:F32:32 && cp p g
$ muonctl explain --config $CONFIGS/moonlight.json --params p
parameter             shape      rule   matrices                 factor      algorithm  rank
tok_embed.weight      [32, 32]   adamw
0.attn.qkv.weight     [96, 32]   muon   [64, 32] + 2 x [16, 32]  1.6, 1.131  gram       0
0.attn.out.weight     [32, 64]   muon   [32, 64]                 1.6         gram       0
0.mlp.gate_up.weight  [128, 32]  muon   2 x [64, 32]             1.6         gram       0
0.mlp.down.weight     [32, 64]   muon   [32, 64]                 1.6         gram       0
0.norm.weight         [32]       adamw
0.attn.out.bias       [32]       adamw

Muon 0.01M (regular 0.01M, expert 0.00M), AdamW 0.00M, frozen 0.00M
* matrices in 1 wave, * Gflop per step, state * MB, workspace * MB (glob)
plan * (glob)
cpu      * (glob)
backend  * (glob)
$ muonctl step --config $CONFIGS/moonlight.json --params p --grads g --out moonlight | grep -v seconds | head -4
applied
grad norm      111.11
clip           0.00900005
update rms     0.00017* (glob)
$ tensors make p norm:F32:2:1 a.attn.qkv.weight:F32:96x4 a.mlp.gate_up.weight:F32:4x4 a.bias:F32:2:1 lm_head:F32:2:1 && tensors make g norm:F32:2:1 a.attn.qkv.weight:F32:96x4 a.mlp.gate_up.weight:F32:4x4 a.bias:F32:2:1 lm_head:F32:2:1
$ muonctl step --config $CONFIGS/moonlight.json --params p --grads g --out moonlight >log; for n in norm a.bias lm_head; do tensors values moonlight/params.safetensors $n; done
0.999 0.999
0.999 0.999
0.9989 0.9989

# moe.json: fused experts, stacked experts, a router on AdamW, a frozen buffer that is no weight.
$ tensors make p embed:F32:32x16 0.router.weight:F32:8x16 0.experts.gate_up:F32:256x16 0.experts.down:F32:8x16x16 0.attn.weight:F32:16x16 0.rotary.inv_freq:F64:8 lm_head:F32:32x16
$ tensors make g embed:F32:32x16 0.router.weight:F32:8x16 0.experts.gate_up:F32:256x16 0.attn.weight:F32:16x16 lm_head:F32:32x16
$ muonctl explain --config $CONFIGS/moe.json --params p
parameter          shape        rule           matrices       factor  algorithm  rank
0.rotary.inv_freq  [8]          frozen
embed              [32, 16]     adamw
0.router.weight    [8, 16]      adamw
0.experts.gate_up  [256, 16]    muon (expert)  16 x [16, 16]  0.8     symmetric  0
0.experts.down     [8, 16, 16]  muon (expert)  8 x [16, 16]   0.8     symmetric  0
0.attn.weight      [16, 16]     muon           [16, 16]       0.8     symmetric  0
lm_head            [32, 16]     adamw

Muon 0.01M (regular 0.00M, expert 0.01M), AdamW 0.00M, frozen 0.00M
* matrices in 1 wave, * Gflop per step, state * MB, workspace * MB (glob)
plan * (glob)
cpu      * (glob)
backend  * (glob)
$ muonctl step --config $CONFIGS/moe.json --params p --grads g --out moe | grep "no gradient"
no gradient    1 parameters
$ tensors show moe/params.safetensors | sort
0.attn.weight F32 16x16
0.experts.down F32 8x16x16
0.experts.gate_up F32 256x16
0.rotary.inv_freq F64 8
0.router.weight F32 8x16
embed F32 32x16
lm_head F32 32x16
$ tensors show moe/state/latest/optimizer.safetensors | grep -c rotary
0
? 1
$ tensors values moe/state/latest/optimizer.safetensors 0.experts.down.step
0

# mla.json: blocks per head and QK-clip for all layers by one entry.
$ layer() { echo layers.$1.self_attn.q_b_proj.weight:F32:96x32 layers.$1.self_attn.kv_a_proj.weight:F32:32x64 layers.$1.self_attn.kv_b_proj.weight:F32:128x24 layers.$1.self_attn.o_proj.weight:F32:64x64; }
$ tensors make p embed:F32:8x64 $(layer 0) $(layer 1) $(layer 10) && cp p g
$ muonctl explain --config $CONFIGS/mla.json --params p | head -6
parameter                             shape      rule   matrices                    factor  algorithm  rank
embed                                 [8, 64]    adamw
layers.0.self_attn.q_b_proj.weight    [96, 32]   muon   4 x [16, 32] + 4 x [8, 32]  1.131   gram       0
layers.0.self_attn.kv_a_proj.weight   [32, 64]   muon   [24, 64] + [8, 64]          1.6     gram       0
layers.0.self_attn.kv_b_proj.weight   [128, 24]  muon   8 x [16, 24]                0.9798  gram       0
layers.0.self_attn.o_proj.weight      [64, 64]   muon   4 x [64, 16]                1.6     gram       0
$ muonctl step --config $CONFIGS/mla.json --params p --grads g --out mla >log
2> muonctl: step: note: without --max-logits there is no QK-clip
$ tensors make l layers.0:F32:4:50 layers.1:F32:4:400 layers.10:F32:4:100
$ muonctl step --config $CONFIGS/mla.json --params p --grads g --max-logits l --out clipped | grep qk-clip
qk-clip        4 heads above 100, largest logit 400
$ tensors diff mla/params.safetensors clipped/params.safetensors | awk '$2 > 0 { print $1 }' | sort
layers.1.self_attn.kv_b_proj.weight
layers.1.self_attn.q_b_proj.weight

# offload.json: f32 weights with bf16 copies, bf16 gradients, bf16 momentum.
$ tensors make p embed:F32:8x16 w:F32:16x24 b:F32:16 && tensors make g embed:BF16:8x16 w:BF16:16x24 b:BF16:16
$ muonctl step --config $CONFIGS/offload.json --params p --grads g --out offload >log
$ ls offload
copy.safetensors
params.safetensors
state
$ tensors show offload/copy.safetensors
embed BF16 8x16
w BF16 16x24
b BF16 16
$ tensors diff offload/params.safetensors offload/copy.safetensors | awk '$2 > 4e-3 || $2 == 0'
$ tensors show offload/state/latest/optimizer.safetensors | grep momentum
w.momentum_buffer BF16 16x24

# A skipped step, a missing gradient: the copy is the rounding of the weight as it is. Frozen: none.
$ sed 's/"params"/"missing_grad": "skip", "classify": {"frozen": "f"}, "params"/' $CONFIGS/offload.json >c.json
$ tensors make p w:F32:16x24 b:F32:16 f:F32:4 && tensors make nan w:F32:16x24:nan && tensors make good w:F32:16x24
$ muonctl step --config c.json --params p --grads nan --out skipped | head -1
skipped: NaN or infinity in the gradient of 'w'; weights and state are unchanged
$ tensors show skipped/copy.safetensors
w BF16 16x24
b BF16 16
$ tensors make half w:F32:16x24 b:F32:16 && tensors diff half skipped/copy.safetensors | awk '$2 > 4e-3 || $2 == 0'
$ muonctl step --config c.json --params p --grads good --out missing >log && tensors diff half missing/copy.safetensors | awk '$1 == "b" && ($2 > 4e-3 || $2 == 0)'
$ tensors make p w:BF16:4x4 && cp p g && muonctl step --config $CONFIGS/offload.json --params p --grads g --out no
2> muonctl: step: param 'w': a bf16 copy needs an f32 weight as its master
? 1

# ranks.json: two meshes for four ranks. Who owns what is shown without them; one process does it all.
$ tensors make p embed:F32:16x32 0.qkv.weight:F32:96x32 0.out.weight:F32:32x64 0.experts.up:F32:6x16x32 0.norm.weight:F32:32 lm_head:F32:16x32 && cp p g
$ muonctl explain --config $CONFIGS/ranks.json --params p | head -4
parameter      shape        rule   matrices                 factor      algorithm  rank
embed          [16, 32]     adamw
0.qkv.weight * 1.6, 1.131  gram       [0-3]* (glob)
0.out.weight * 1.6         gram       [0-3] (glob)
$ muonctl step --config $CONFIGS/ranks.json --params p --grads g --out ranks >log
2> muonctl: step: note: the config is for 4 ranks; this one process holds every tensor whole
