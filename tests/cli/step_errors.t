# Whatever is wrong is named, and nothing is written.
$ tensors make p w:F32:4x6 v:F32:3x3 b:F32:5 && tensors make g w:F32:4x6 v:F32:3x3 b:F32:5
$ try() { muonctl step --config $CONFIGS/minimal.json --params ${1-p} --grads ${2-g} --out ${3-out} $4; }

# Files.
$ try none
2> muonctl: step: none: cannot be opened: No such file or directory
? 1
$ try p none
2> muonctl: step: none: cannot be opened: No such file or directory
? 1
$ try p g no/such/dir
2> muonctl: step: cannot create the directory 'no/such/dir': No such file or directory
? 1
$ try p g p
2> muonctl: step: 'p' is not a directory
? 1
$ muonctl step --config none.json --params p --grads g --out out
2> muonctl: step: none.json: cannot be opened: No such file or directory
? 1

# Gradients.
$ tensors make few w:F32:4x6 && try p few
2> muonctl: step: parameters without a gradient: 'v', 'b'; "missing_grad": "skip" in the config allows it
? 1
$ tensors make extra w:F32:4x6 v:F32:3x3 b:F32:5 W:F32:4x6 && try p extra
2> muonctl: step: gradients without a parameter: 'W'
? 1
$ tensors make turned w:F32:6x4 v:F32:3x3 b:F32:5 && try p turned
2> muonctl: step: gradient 'w': shape is 6x4, the parameter's is 4x6
? 1
$ tensors make longer w:F32:4x6 v:F32:3x3 b:F32:5x1 && try p longer
2> muonctl: step: gradient 'b': shape is 5x1, the parameter's is 5
? 1
$ tensors make half w:F16:4x6 v:F32:3x3 b:F32:5 && try p half
2> muonctl: step: gradient 'w': dtype is F16, must be F32 or BF16; convert the file first
? 1
$ tensors make wide w:F64:4x6 v:F32:3x3 b:F32:5 && try p wide
2> muonctl: step: gradient 'w': dtype is F64, must be F32 or BF16; convert the file first
? 1
$ tensors make many p.0:F32:2 p.1:F32:2 p.2:F32:2 p.3:F32:2 p.4:F32:2 p.5:F32:2 p.6:F32:2 p.7:F32:2 p.8:F32:2 p.9:F32:2 w:F32:4x6
$ try many few
2> muonctl: step: parameters without a gradient: 'p.0', 'p.1', 'p.2', 'p.3', 'p.4', 'p.5', 'p.6', 'p.7' and 2 more; "missing_grad": "skip" in the config allows it
? 1

# Parameters.
$ tensors make ints w:F32:4x6 v:F32:3x3 b:I64:5 && try ints
2> muonctl: step: param 'b': dtype is I64, must be F32 or BF16; a tensor that is no weight can be frozen in the config's "classify"
? 1
$ tensors make cube w:F32:4x6x2 && try cube cube
2> muonctl: step: param 'w': shape [4, 6, 2]: which of the last 3 dims are rows and columns? "batch 1" makes 4 matrices of [6, 2], "flatten 1" (a convolution) makes 1 of [4, 12]
? 1
$ tensors make vectors b:F32:5 c:F32:7 && try vectors vectors
2> muonctl: step: none of the 2 parameters is in a Muon group (set allow_no_muon if that is meant)
? 1
$ tensors make empty && try empty empty
2> muonctl: step: there are no parameters
? 1
$ tensors make zero w:F32:0x4 v:F32:3x3 && try zero zero
2> muonctl: step: param 'w': shape [0, 4]: dim 0 is 0, must be at least 1
? 1

# State: missing, extra, of another shape, of another kind.
$ try p g good >log
$ tensors make s w.momentum_buffer:F32:4x6 && try p g out "--state s"
2> muonctl: step: s: missing tensors: 'w.step', 'v.momentum_buffer', 'v.step', 'b.exp_avg', 'b.exp_avg_sq', 'b.step'
? 1
$ tensors make s w.momentum_buffer:F32:4x6 w.step:I64:- v.momentum_buffer:F32:3x3 v.step:I64:- b.exp_avg:F32:5 b.exp_avg_sq:F32:5 b.step:I64:- x.step:I64:- && try p g out "--state s"
2> muonctl: step: s: tensors without a parameter: 'x.step'
? 1
$ tensors make s w.momentum_buffer:F32:6x4 w.step:I64:- v.momentum_buffer:BF16:3x3 v.step:I64:- b.exp_avg:F32:5 b.exp_avg_sq:F32:5 b.step:I64:- && try p g out "--state s"
2> muonctl: step: s: tensors unlike the optimizer's: 'w.momentum_buffer (F32 6x4, the optimizer has F32 4x6)', 'v.momentum_buffer (BF16 3x3, the optimizer has F32 3x3)'
? 1
$ tensors make s w.momentum_buffer:F32:4x6 w.step:I64:-:-1 v.momentum_buffer:F32:3x3 v.step:I64:- b.exp_avg:F32:5 b.exp_avg_sq:F32:5 b.step:I64:- && try p g out "--state s"
2> muonctl: step: s: 'w.step' is -1, no number of steps
? 1
$ tensors make s w.momentum_buffer:F32:4x6:nan w.step:I64:- v.momentum_buffer:F32:3x3 v.step:I64:- b.exp_avg:F32:5 b.exp_avg_sq:F32:5 b.step:I64:- && try p g out "--state s"
2> muonctl: step: s: 'w.momentum_buffer' has a NaN or infinity
? 1
$ try p g out "--state none"
2> muonctl: step: none: cannot be opened: No such file or directory
? 1
$ try p g out "--state p"
2> muonctl: step: p: missing tensors: 'w.momentum_buffer', 'w.step', 'v.momentum_buffer', 'v.step', 'b.exp_avg', 'b.exp_avg_sq', 'b.step'
? 1

# An honest state of somebody else's making is fine.
$ tensors make s w.momentum_buffer:F32:4x6 w.step:I64:-:3 v.momentum_buffer:F32:3x3 v.step:I64:-:3 b.exp_avg:F32:5 b.exp_avg_sq:F32:5:1 b.step:I64:-:3 && try p g theirs "--state s" >log
$ tensors values theirs/state.safetensors b.step
4
$ test -e out
? 1

# A failure leaves what was there.
$ cp good/params.safetensors before && try p few good
2> muonctl: step: parameters without a gradient: 'v', 'b'; "missing_grad": "skip" in the config allows it
? 1
$ cmp good/params.safetensors before && ls good
params.safetensors
state.safetensors

# Max logits need layers to belong to.
$ tensors make l a:F32:2 && try p g out "--max-logits l"
2> muonctl: step: --max-logits is given, but the config has no "qk_clip"
? 1
