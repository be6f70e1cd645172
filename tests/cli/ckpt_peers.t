# State that torch's optimizers number: names give the numbers meaning. Each optimizer has its own.
$ tensors make muon state.0.momentum_buffer:F32:4x6 state.1.momentum_buffer:F32:6x3
$ tensors make adamw state.0.exp_avg:F32:6 state.0.exp_avg_sq:F32:6:1,2,3 state.0.step:F32:-:12
$ printf 'h.0.w\nh.1.w\n' >muon.txt && printf '["norm", "unused"]' >adamw.txt
$ muonctl ckpt import muon adamw torch --from torch --names muon.txt,adamw.txt
step 12, parameters: 2 of Muon (ema), 1 of AdamW; settings of torch
$ muonctl ckpt inspect torch 'h*' | head -9
torch/step-00000012: step 12, libmuon 0.5.0, 7 tensors, 240 B
muon.clip_norm: 0
muon.format: 1
muon.qk_log_only: 0
muon.qk_threshold: 100
muon.seed: 0
muon.skip_norm: 0
group 0 'muon': 2 parameters, rule muon, lr 0.001, weight_decay 0.1, clip 1, momentum 0.95, nesterov 1, momentum_form ema, momentum_dtype f32, lr_mode original, lr_scale 1, coefficients original, ns_steps 5, algorithm auto, ns_eps 1e-07, eps_mode clamp, normalization frobenius, norm_scale 0, decay_form decoupled, cautious_decay 0, bias_correction 0, equalize 0, adaptive 0, renormalize 0, second_moment none, second_beta 0.95, second_eps 1e-08, second_eps_mode add, update_norm own
group 1 'adamw': 1 parameter, rule adamw, lr 0.001, weight_decay 0.01, clip 1, beta1 0.9, beta2 0.999, adam_eps 1e-08, adam_eps_mode corrected, decay_form decoupled, cautious_decay 0
$ muonctl bench ns:1x1@nothing=1 2>&1 | sed -n 's/.*known: //p' | tr -d , | tr ' ' '\n' | sort >fields
$ muonctl ckpt inspect torch --json | grep -o '"muon.group.0.[a-z0-9_]*"' | tr -d '"' | cut -d. -f4 | grep -v '^name$' | sort | diff - fields
$ tensors load torch
step 12
h.0.w.momentum_buffer -1.79799
h.0.w.step 12
h.1.w.momentum_buffer -1.1665
h.1.w.step 12
norm.exp_avg -0.610801
norm.exp_avg_sq 1
norm.step 12

# Export gives the same bytes back.
$ muonctl ckpt export torch muon.out --to torch --names muon.txt && muonctl ckpt diff muon muon.out
tensors: 2 equal, 0 differ
2> muonctl: ckpt export: note: omitted, since muon.txt does not have them: 'norm.step', 'norm.exp_avg', 'norm.exp_avg_sq'
$ echo norm >norm.txt && muonctl ckpt export torch adamw.out --to torch --names norm.txt && muonctl ckpt diff adamw adamw.out
tensors: 3 equal, 0 differ
2> muonctl: ckpt export: note: omitted, since norm.txt does not have them: 'h.0.w.step', 'h.1.w.step', 'h.0.w.momentum_buffer', 'h.1.w.momentum_buffer'
$ muonctl ckpt export torch x --to torch --names adamw.txt
2> muonctl: ckpt export: adamw.txt: torch/step-00000012 has no state for 'unused'
? 1
$ tensors values adamw.out state.0.step && tensors metadata adamw.out format && tensors metadata adamw.out muon.step
12
pt
12
$ tensors metadata adamw.out muon.group.0.momentum_form
ema
$ muonctl ckpt export torch all.out --to torch --prefix optimizer.state. && tensors show all.out
optimizer.state.norm.step F32 -
optimizer.state.h.0.w.momentum_buffer F32 4x6
optimizer.state.h.1.w.momentum_buffer F32 6x3
optimizer.state.norm.exp_avg F32 6
optimizer.state.norm.exp_avg_sq F32 6
$ muonctl ckpt import all.out again --from torch && muonctl ckpt diff torch again
step 12, parameters: 2 of Muon (ema), 1 of AdamW; settings of torch
tensors: 7 equal, 0 differ; settings: 0 differ

# Each peer's words and form; there and back nothing is lost where nothing is scaled.
$ for p in torch keller moonlight megatron dion xtuner motif; do muonctl ckpt export torch $p.out --to $p && tensors show $p.out | cut -d' ' -f1,2 | tr '\n' ' ' && echo $p $(tensors metadata $p.out muon.group.0.momentum_form); done
norm.step F32 h.0.w.momentum_buffer F32 h.1.w.momentum_buffer F32 norm.exp_avg F32 norm.exp_avg_sq F32 torch ema
norm.step I64 h.0.w.momentum_buffer F32 h.1.w.momentum_buffer F32 norm.exp_avg F32 norm.exp_avg_sq F32 keller ema
norm.step I64 h.0.w.momentum_buffer F32 h.1.w.momentum_buffer F32 norm.moment1 F32 norm.moment2 F32 moonlight heavy_ball
norm.step F32 h.0.w.momentum_buffer F32 h.1.w.momentum_buffer F32 norm.exp_avg F32 norm.exp_avg_sq F32 megatron ema
norm.step_dev F32 h.0.w.momentum F32 h.1.w.momentum F32 norm.momentum F32 norm.variance F32 dion heavy_ball
norm.step I64 h.0.w.momentum F32 h.1.w.momentum F32 norm.momentum F32 norm.variance F32 xtuner heavy_ball
norm.step F32 h.0.w.momentum_buffer F32 h.1.w.momentum_buffer F32 norm.moment1 F32 norm.moment2 F32 motif heavy_ball
$ for p in keller megatron; do muonctl ckpt import $p.out $p.root --from $p >log && muonctl ckpt diff torch $p.root '*'; done
tensors: 7 equal, 0 differ
tensors: 7 equal, 0 differ
$ for p in moonlight dion xtuner motif; do muonctl ckpt import $p.out $p.root --from $p --momentum ema && muonctl ckpt diff torch $p.root '*' --tolerance 1.2e-7 | tail -1; done
step 12, parameters: 2 of Muon (heavy_ball to ema), 1 of AdamW; settings of moonlight
tensors: 6 equal, 1 within 1.2e-07, 0 differ
step 12, parameters: 2 of Muon (heavy_ball to ema), 1 of AdamW; settings of dion
tensors: 6 equal, 1 within 1.2e-07, 0 differ
step 12, parameters: 2 of Muon (heavy_ball to ema), 1 of AdamW; settings of xtuner
tensors: 6 equal, 1 within 1.2e-07, 0 differ
step 12, parameters: 2 of Muon (heavy_ball to ema), 1 of AdamW; settings of motif
tensors: 6 equal, 1 within 1.2e-07, 0 differ
$ for p in keller moonlight megatron dion xtuner motif; do tensors load $p.root | head -2 | tr '\n' ' '; done; echo
step 12 norm.exp_avg -0.610801 step 12 norm.exp_avg -0.610801 step 12 norm.exp_avg -0.610801 step 12 norm.exp_avg -0.610801 step 12 norm.exp_avg -0.610801 step 12 norm.exp_avg -0.610801 

# heavy_ball is ema / (1 - momentum), by the group's momentum or --mu.
$ tensors make one w.momentum_buffer:F32:2x2:1,2,3,0
$ muonctl ckpt import one m --from torch --mu 0.75 --step 7 && tensors load m
step 7, parameters: 1 of Muon (ema), 0 of AdamW; settings of torch
step 7
w.momentum_buffer 1
w.step 7
$ muonctl ckpt convert m m.hb --momentum heavy_ball && tensors values m.hb/step-00000007/optimizer.safetensors w.momentum_buffer
4 8 12 0
$ muonctl ckpt diff m m.hb
w.momentum_buffer: 3 of 4 elements differ, by 9 at most, 0.75 of the largest
setting group 0 'muon': momentum_form: ema in A, heavy_ball in B
tensors: 1 equal, 1 differ; settings: 1 differ
? 1
$ muonctl ckpt convert m.hb m.back --momentum ema && muonctl ckpt diff m m.back
tensors: 2 equal, 0 differ; settings: 0 differ
$ muonctl ckpt convert m m.mu --momentum heavy_ball --mu 0.5 && tensors values m.mu/step-00000007/optimizer.safetensors w.momentum_buffer
2 4 6 0
$ muonctl ckpt import one direct --from torch --mu 0.75 --step 7 --momentum heavy_ball && muonctl ckpt diff m.hb direct
step 7, parameters: 1 of Muon (ema to heavy_ball), 0 of AdamW; settings of torch
tensors: 2 equal, 0 differ; settings: 0 differ
$ muonctl ckpt convert m same --momentum ema && muonctl ckpt diff m same
tensors: 2 equal, 0 differ; settings: 0 differ
2> muonctl: ckpt convert: note: m/step-00000007: nothing to convert; it is copied unchanged
$ tensors load m.hb
step 7
w.momentum_buffer 4
w.step 7

# Momentum as bf16, rounded to nearest even, and back; what is already bf16 stays.
$ tensors make fine w.momentum_buffer:F32:2x3:1.00390625,1.01171875,-1.0040,3,0,-0
$ muonctl ckpt import fine f --from moonlight --step 1 && muonctl ckpt convert f f.bf16 --momentum-dtype bf16
step 1, parameters: 1 of Muon (heavy_ball), 0 of AdamW; settings of moonlight
$ tensors values f.bf16/step-00000001/optimizer.safetensors w.momentum_buffer && tensors load f.bf16
1 1.01562 -1.00781 3 0 -0
step 1
w.momentum_buffer 1
w.step 1
$ muonctl ckpt inspect f.bf16 | grep -o 'momentum_dtype [a-z0-9]*'
momentum_dtype bf16
$ muonctl ckpt convert f.bf16 f.f32 --momentum-dtype f32 && tensors show f.f32/step-00000001/optimizer.safetensors
w.step I64 -
w.momentum_buffer F32 2x3
$ tensors make half w.momentum_buffer:BF16:2x3 && muonctl ckpt import half h --from moonlight --step 1 && muonctl ckpt export h h.out --to moonlight && muonctl ckpt diff half h.out
step 1, parameters: 1 of Muon (heavy_ball), 0 of AdamW; settings of moonlight
tensors: 1 equal, 0 differ

# Weights and the caller's own entries are carried on.
$ tensors save own 3 data.position=17 muon.format=1 muon.ngroups=1 muon.group.0.rule=muon muon.group.0.momentum=0.5 muon.param.w=0 w.momentum_buffer:F32:2x2 w.step:I64:-:3 w:BF16:2x2
$ muonctl ckpt convert own own.ema --momentum ema && muonctl ckpt diff own own.ema
w.momentum_buffer: 4 of 4 elements differ, by 0.463 at most, 0.5 of the largest
setting group 0: momentum_form: (none) in A, ema in B
tensors: 2 equal, 1 differ; settings: 1 differ
? 1
$ muonctl ckpt inspect own.ema | head -3
own.ema/step-00000003: step 3, 3 tensors, 32 B
data.position: 17
muon.format: 1

# Any dtype of a step, shaped [] or [1]; F64 momentum is rounded.
$ tensors make s a.exp_avg:F32:2 a.exp_avg_sq:F32:2:1 a.step:F64:-:5 b.exp_avg:F32:2 b.exp_avg_sq:F32:2:2 b.step:I64:1:6 c.momentum_buffer:F64:2x2
$ muonctl ckpt import s steps --from keller && muonctl ckpt inspect steps '*.step' | grep -o '^[abc].*scalar *[0-9]*' && tensors load steps
step 6, parameters: 1 of Muon (ema), 2 of AdamW; settings of keller
a.step I64   scalar                    5
b.step I64   scalar                    6
c.step I64   scalar                    6
step 6
a.exp_avg 0.959585
a.exp_avg_sq 1
a.step 5
b.exp_avg -0.127441
b.exp_avg_sq 2
b.step 6
c.momentum_buffer 0.633504
c.step 6

# state.safetensors, as muonctl step wrote it before 0.5.0: its settings are in its metadata.
$ old() { tensors make old format=muon-state format_version=1 muon_version=0.4.0 "rules=$1" w.step:I64:-:2 b.step:I64:-:2 w.momentum_buffer:F32:4x6 b.exp_avg:F32:5 b.exp_avg_sq:F32:5:1; }
$ old '{"groups":{"muon":{"lr":0.02},"adamw":{"lr":0.0003}}}' && muonctl ckpt import old new --from muonctl
step 2, parameters: 1 of Muon (heavy_ball), 1 of AdamW; settings of muonctl
$ muonctl ckpt inspect new --json | grep -o '"muon.group.[01].\(name\|lr\|momentum_form\)":"[^"]*"'
"muon.group.0.lr":"0.02"
"muon.group.0.momentum_form":"heavy_ball"
"muon.group.0.name":"muon"
"muon.group.1.lr":"0.0003"
"muon.group.1.momentum_form":"heavy_ball"
"muon.group.1.name":"adamw"
$ echo '{"groups": {"muon": {"lr": 0.02}, "adamw": {"lr": 0.0003}}}' >c.json && tensors make p w:F32:4x6 b:F32:5 && cp p g
$ muonctl step --config c.json --params p --grads g --state new --out out --verbose 2>&1 >log | grep -v created
? 1
$ tensors values out/state/latest/optimizer.safetensors b.step
3
$ muonctl ckpt diff old new
tensors: 5 equal, 0 differ
$ old '{"preset":"torch"}' && muonctl ckpt import old ema --from muonctl && muonctl step --config c.json --params p --grads g --state ema --out out
step 2, parameters: 1 of Muon (ema), 1 of AdamW; settings of muonctl
2> muonctl: step: ema/step-00000002 does not fit this optimizer: momentum of another form 'w' (ema, must be heavy_ball)
? 1
$ muonctl ckpt import old heavy --from muonctl --momentum heavy_ball && muonctl step --config c.json --params p --grads g --state heavy --out out >log
step 2, parameters: 1 of Muon (ema to heavy_ball), 1 of AdamW; settings of muonctl
$ old '{"groups":{"a":{},"muon":{"momentum_form":"ema"}}}' && muonctl ckpt import old no --from muonctl
2> muonctl: ckpt import: old: momentum is heavy_ball in group 'a', but ema in group 'muon'
? 1
$ old '[]' && muonctl ckpt import old no --from muonctl
2> muonctl: ckpt import: old: its "rules" are not a JSON object
? 1
$ tensors make other w.momentum_buffer:F32:4x6 && muonctl ckpt import other no --from muonctl
2> muonctl: ckpt import: other: it was not written by 'muonctl step'
? 1
$ muonctl ckpt export new no --to muonctl
2> muonctl: ckpt export: --to: 'muonctl' is unknown; known: torch, keller, moonlight, megatron, dion, xtuner, motif
2> try: muonctl ckpt export --help
? 2
$ test -e no
? 1
