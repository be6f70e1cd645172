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
$ tensors make wide w:F64:4x6 v:F32:3x3 b:F32:5 && try p wide
2> muonctl: step: gradient 'w': dtype is F64, must be F32, BF16 or F16; convert the file first
? 1
$ tensors make many p.0:F32:2 p.1:F32:2 p.2:F32:2 p.3:F32:2 p.4:F32:2 p.5:F32:2 p.6:F32:2 p.7:F32:2 p.8:F32:2 p.9:F32:2 w:F32:4x6
$ try many few
2> muonctl: step: parameters without a gradient: 'p.0', 'p.1', 'p.2', 'p.3', 'p.4', 'p.5', 'p.6', 'p.7' and 2 more; "missing_grad": "skip" in the config allows it
? 1

# Parameters.
$ tensors make ints w:F32:4x6 v:F32:3x3 b:I64:5 && try ints
2> muonctl: step: param 'b': dtype is I64, must be F32 or BF16; a tensor that is not a weight can be frozen in the config's "classify"
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

# State: missing, extra, of another shape, of another dtype, no number of steps; nothing there.
$ try p g good >log
$ rest="v.momentum_buffer:F32:3x3 v.step:I64:-:3 b.exp_avg:F32:5 b.exp_avg_sq:F32:5:1 b.step:I64:-:3"
$ tensors save s1 3 w.momentum_buffer:F32:4x6 && try p g out "--state s1"
2> muonctl: step: s1/step-00000003 does not fit this optimizer: missing 'w.step', 'v.momentum_buffer', 'v.step' and 3 more
? 1
$ tensors save s2 3 w.momentum_buffer:F32:4x6 w.step:I64:- x.step:I64:- $rest && try p g out "--state s2"
2> muonctl: step: s2/step-00000003 does not fit this optimizer: extra 'x.step'
? 1
$ tensors save s3 3 w.momentum_buffer:F32:6x4 w.step:I64:- $rest && try p g out "--state s3"
2> muonctl: step: s3/step-00000003 does not fit this optimizer: misshapen 'w.momentum_buffer' (F32 [6, 4], must be F32 [4, 6])
? 1
$ tensors save s4 3 w.momentum_buffer:BF16:4x6 w.step:I64:- $rest && try p g out "--state s4"
2> muonctl: step: s4/step-00000003 does not fit this optimizer: misshapen 'w.momentum_buffer' (BF16 [4, 6], must be F32 [4, 6])
? 1
$ tensors save s5 3 w.momentum_buffer:F32:4x6 w.step:I64:-:-1 $rest && try p g out "--state s5"
2> muonctl: step: s5/step-00000003: tensor 'w.step' is -1, must not be negative
? 1
$ try p g out "--state none"
2> muonctl: step: none: there is no checkpoint, and no such directory
? 1
$ mkdir nothing && try p g out "--state nothing"
2> muonctl: step: nothing: there is no checkpoint in it
? 1

# State of before 0.5.0, or anything else that is a file.
$ tensors make old format=muon-state w.momentum_buffer:F32:4x6 w.step:I64:- $rest && try p g out "--state old"
2> muonctl: step: old: it is not a directory; 'muonctl ckpt import old ROOT --from muonctl' makes a checkpoint from a state.safetensors
? 1

# An honest state of somebody else's making is fine.
$ tensors save s 3 w.momentum_buffer:F32:4x6 w.step:I64:-:3 $rest && try p g theirs "--state s" >log
$ tensors values theirs/state/latest/optimizer.safetensors w.step
4
$ test -e out
? 1

# A failure leaves what was there.
$ cp good/params.safetensors before && try p few good
2> muonctl: step: parameters without a gradient: 'v', 'b'; "missing_grad": "skip" in the config allows it
? 1
$ cmp good/params.safetensors before && ls good
params.safetensors
state

# Max logits need layers to belong to.
$ tensors make l a:F32:2 && try p g out "--max-logits l"
2> muonctl: step: --max-logits is given, but the config has no "qk_clip"
? 1
