# What an import cannot place is listed, never dropped quietly.
$ tensors make f w.momentum_buffer:F32:2x2 w.variance_neuron:F32:2x1 extra:F32:3 n.exp_avg:F32:2 n.exp_avg_sq:F32:2 n.step:F32:-:4 lone.step:F32:-:4 w.lr_ratio:F32:-
$ muonctl ckpt import f out --from dion
2> muonctl: ckpt import: tensors that are not state of Muon or AdamW: 'w.variance_neuron', 'extra', 'lone.step'; --ignore-unknown omits them
? 1
$ test -e out || echo none
none
$ muonctl ckpt import f out --from dion --ignore-unknown
step 4, parameters: 1 of Muon (heavy_ball), 1 of AdamW; settings of dion
2> muonctl: ckpt import: note: omitted: 'w.variance_neuron', 'extra', 'lone.step'
$ muonctl ckpt import f out --from dion --ignore-unknown
2> muonctl: ckpt import: note: omitted: 'w.variance_neuron', 'extra', 'lone.step'
2> muonctl: ckpt import: out/step-00000004: exists already
? 1

# Numbers want names.
$ tensors make n state.0.momentum_buffer:F32:2x2 state.7.momentum_buffer:F32:2x2
$ muonctl ckpt import n x --from torch
2> muonctl: ckpt import: n: 'state.0.momentum_buffer' has the number of a parameter: --names must list their names, in the order of the optimizer
? 1
$ printf 'a\nb\n' >two && muonctl ckpt import n x --from torch --names two
2> muonctl: ckpt import: n: 'state.7.momentum_buffer': --names has 2 names only
? 1
$ printf 'a\na\n' >twice && muonctl ckpt import n x --from torch --names twice
2> muonctl: ckpt import: twice: 'a' appears twice
? 1
$ printf '["a", 1]' >bad && muonctl ckpt import n x --from torch --names bad
2> muonctl: ckpt import: bad: entry 1 is not a string
? 1
$ printf '["a", ' >bad && muonctl ckpt import n x --from torch --names bad
2> muonctl: ckpt import: bad: line 1: ']' expected near end of file
? 1
$ printf 'a\0b\n' >bad && muonctl ckpt import n x --from torch --names bad
2> muonctl: ckpt import: bad: it is not text
? 1
$ muonctl ckpt import n x --from torch --names nothing
2> muonctl: ckpt import: nothing: No such file or directory
? 1
$ muonctl ckpt import n x --from torch --names two,two
2> muonctl: ckpt import: --names: 2 lists for 1 files; one, or one for each
2> try: muonctl ckpt import --help
? 2

# State that does not fit together.
$ tensors make g w.exp_avg:F32:2x2 && muonctl ckpt import g x --from torch
2> muonctl: ckpt import: g: 'w.exp_avg' is present, but its counterpart is missing
? 1
$ tensors make g w.exp_avg:F32:2x2 w.exp_avg_sq:F32:2 && muonctl ckpt import g x --from torch
2> muonctl: ckpt import: g: 'w.exp_avg' is 2x2, but 'w.exp_avg_sq' is 2
? 1
$ tensors make g w.exp_avg:F32:2 w.exp_avg_sq:F32:2 && muonctl ckpt import g x --from torch
2> muonctl: ckpt import: parameters without a step: 'w'; use --step
? 1
$ tensors make g w.momentum_buffer:F32:2x2 && muonctl ckpt import g x --from torch
2> muonctl: ckpt import: parameters without a step: 'w'; use --step
? 1
$ tensors make g w.exp_avg:F32:2 w.exp_avg_sq:F32:2 w.momentum_buffer:F32:2x2 && muonctl ckpt import g x --from torch --step 1
2> muonctl: ckpt import: 'w' has the state of Muon and of AdamW
? 1
$ tensors make g w.momentum:F32:4 && muonctl ckpt import g x --from dion --step 1
2> muonctl: ckpt import: g: 'w.momentum' has 1 dims, Muon's momentum has 2 or more (of another rule?)
? 1
$ tensors make g w.momentum:I64:2x2 && muonctl ckpt import g x --from dion --step 1
2> muonctl: ckpt import: g: 'w.momentum' is I64, must be F32, BF16, F16 or F64
? 1
$ tensors make g w.momentum:F32:2x2 w.momentum_buffer:F32:2x2 && muonctl ckpt import g x --from dion --step 1
2> muonctl: ckpt import: g: 'w.momentum' means the same as 'w.momentum_buffer' of g
? 1
$ tensors make g w.momentum:F32:2x2 state.w.momentum:F32:2x2 && muonctl ckpt import g x --from dion --step 1
2> muonctl: ckpt import: g: 'state.w.momentum' means the same as 'w.momentum' of g
? 1
$ tensors make g w.momentum:F32:2x2 w.step:F32:-:1.5 && muonctl ckpt import g x --from dion --step 1
2> muonctl: ckpt import: g: 'w.step' is 1.5, not a number of steps
? 1
$ tensors make g w.momentum:F32:2x2 w.step:F32:-:-1 && muonctl ckpt import g x --from dion --step 1
2> muonctl: ckpt import: g: 'w.step' is -1, not a number of steps
? 1
$ tensors make g w.momentum:F32:2x2 w.step:F32:2:1 && muonctl ckpt import g x --from dion --step 1
2> muonctl: ckpt import: g: 'w.step' is F32 2, not a single number
? 1
$ tensors make g && muonctl ckpt import g x --from dion
2> muonctl: ckpt import: the files have no state of Muon or AdamW
? 1
$ tensors make g w.momentum:F32:2x2:3e38 && muonctl ckpt import g x --from torch --step 1 --momentum heavy_ball
2> muonctl: ckpt import: tensor 'w.momentum_buffer': element 0 is 6e+39, too large for F32
? 1
$ ls -A x

# A step that exists is not written over.
$ tensors make g w.momentum:F32:2x2 && muonctl ckpt import g y --from dion --step 3 && muonctl ckpt import g y --from dion --step 3
step 3, parameters: 1 of Muon (heavy_ball), 0 of AdamW; settings of dion
2> muonctl: ckpt import: y/step-00000003: exists already
? 1
$ muonctl ckpt convert y y --momentum ema
2> muonctl: ckpt convert: y/step-00000003: exists already
? 1

# libmuon's own state is no peer's: a checkpoint is one already, and a file says which form it has.
$ tensors save own 1 muon.format=1 muon.ngroups=2 muon.group.0.rule=adamw muon.group.0.momentum_form=ema muon.group.1.rule=muon muon.group.1.momentum_form=heavy_ball muon.param.w=1 w.momentum_buffer:F32:2x2 w.step:I64:-:1
$ muonctl ckpt import own x --from moonlight
2> muonctl: ckpt import: own: it is already a checkpoint; use 'muonctl ckpt convert'
? 1
$ muonctl ckpt import own/step-00000001 x --from moonlight
2> muonctl: ckpt import: own/step-00000001: it is already a checkpoint; use 'muonctl ckpt convert'
? 1
$ muonctl ckpt import own/step-00000001/optimizer.safetensors x --from torch
2> muonctl: ckpt import: own/step-00000001/optimizer.safetensors: its momentum is heavy_ball, torch's is ema
? 1
$ muonctl ckpt import own/step-00000001/optimizer.safetensors from_file --from moonlight
step 1, parameters: 1 of Muon (heavy_ball), 0 of AdamW; settings of moonlight
$ muonctl ckpt export own own.out --to keller && muonctl ckpt import own.out x --from moonlight
2> muonctl: ckpt import: own.out: its momentum is ema, moonlight's is heavy_ball
? 1
$ muonctl ckpt import own.out from_export --from keller
step 1, parameters: 1 of Muon (ema), 0 of AdamW; settings of keller

# Words.
$ muonctl ckpt import g x
2> muonctl: ckpt import: option '--from PEER' is required
2> try: muonctl ckpt import --help
? 2
$ muonctl ckpt import g --from torch
2> muonctl: ckpt import: missing operand OUT_ROOT
2> try: muonctl ckpt import --help
? 2
$ muonctl ckpt import g x --from trch
2> muonctl: ckpt import: --from: 'trch' is unknown; known: torch, keller, moonlight, megatron, dion, xtuner, motif, muonctl; did you mean 'torch'?
2> try: muonctl ckpt import --help
? 2
$ muonctl ckpt import nothing x --from torch
2> muonctl: ckpt import: nothing: No such file or directory
? 1
$ muonctl ckpt import g x --from torch --momentum emma
2> muonctl: ckpt import: --momentum: momentum_form 'emma' is unknown; known: heavy_ball, ema; did you mean 'ema'?
2> try: muonctl ckpt import --help
? 2
$ muonctl ckpt import g x --from torch --momentum-dtype f16
2> muonctl: ckpt import: --momentum-dtype: momentum_dtype 'f16' is unknown; known: f32, bf16, i8; did you mean 'bf16'?
2> try: muonctl ckpt import --help
? 2
$ muonctl ckpt import g x --from torch --mu 1
2> muonctl: ckpt import: --mu: 1 is not in 0..0.9999
2> try: muonctl ckpt import --help
? 2
$ muonctl ckpt convert y z
2> muonctl: ckpt convert: one of --momentum and --momentum-dtype is required
2> try: muonctl ckpt convert --help
? 2
$ muonctl ckpt convert g z --momentum ema
2> muonctl: ckpt convert: g: it is a file; IN must be a checkpoint
? 1
$ muonctl ckpt convert y z --momentum nesterov
2> muonctl: ckpt convert: --momentum: momentum_form 'nesterov' is unknown; known: heavy_ball, ema
2> try: muonctl ckpt convert --help
? 2
$ muonctl ckpt export y z --to keler
2> muonctl: ckpt export: --to: 'keler' is unknown; known: torch, keller, moonlight, megatron, dion, xtuner, motif; did you mean 'keller'?
2> try: muonctl ckpt export --help
? 2
$ muonctl ckpt export g z --to keller
2> muonctl: ckpt export: g: IN must be a checkpoint
? 1
$ printf 'w\nv\nu\n' >names && muonctl ckpt export y z --to keller --names names
2> muonctl: ckpt export: names: y/step-00000003 has no state for 'v', 'u'
? 1
$ test -e z || echo none
none
$ printf 'other\n' >other && muonctl ckpt export y z --to keller --names other
2> muonctl: ckpt export: other: y/step-00000003 has no state for 'other'
? 1
$ muonctl ckpt export y nowhere/z --to keller
2> muonctl: ckpt export: nowhere/z: its directory cannot be opened: No such file or directory
? 1
$ tensors save odd 1 w.momentum_buffer:F32:2x2 w.step:I64:- && muonctl ckpt convert odd z --momentum ema
2> muonctl: ckpt convert: odd/step-00000001: there is no muon.param.w that says which group it is in
? 1
$ muonctl ckpt export odd z --to torch
2> muonctl: ckpt export: odd/step-00000001: there is no muon.param.w that says which group it is in
? 1
$ tensors save odd 2 muon.ngroups=1 muon.group.0.momentum=2 muon.param.w=0 w.momentum_buffer:F32:2x2 && muonctl ckpt export odd z --to torch
2> muonctl: ckpt export: odd/step-00000002: muon.group.0: momentum is 2, must be in [0, 1)
? 1
$ tensors save odd 3 muon.ngroups=1 muon.param.w=1 w.momentum_buffer:F32:2x2 && muonctl ckpt export odd z --to torch
2> muonctl: ckpt export: odd/step-00000003: there is no muon.param.w that says which group it is in
? 1

# A setting that is no word of the library's.
$ for f in rule momentum_form momentum_dtype lr_mode coefficients algorithm eps_mode adam_eps_mode decay_form; do rm -rf odd && tensors save odd 1 muon.ngroups=1 muon.group.0.$f=? muon.param.w=0 w.momentum_buffer:F32:2x2 && muonctl ckpt export odd z --to torch 2>&1 | sed 's/.*: muon.group.0: //'; done
rule '?' is unknown; known: muon, adamw, frozen, lion
momentum_form '?' is unknown; known: heavy_ball, ema
momentum_dtype '?' is unknown; known: f32, bf16, i8
lr_mode '?' is unknown; known: rms_norm, spectral_norm, original, spectral, none
coefficients '?' is unknown; known: you, original, polar_express, cans, deepseek_v4, custom, polar_express_8, aol, cubic5
algorithm '?' is unknown; known: auto, standard, symmetric, gram
eps_mode '?' is unknown; known: relative, add, clamp
adam_eps_mode '?' is unknown; known: corrected, raw
decay_form '?' is unknown; known: decoupled, independent, l2, palm
