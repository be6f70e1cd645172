# A failed run is exit code 1, names what is at fault, and leaves no output.
$ tensors make in good:F32:3x3 bad:F32:3x4:nan
$ muonctl ortho in out
2> muonctl: ortho: tensor 'bad': matrix 0 of 1 has a NaN or infinity
? 1
$ ls
in
$ tensors make in good:F32:3x3 bad:F32:2x3x4:inf
$ muonctl ortho in out
2> muonctl: ortho: tensor 'bad': matrix 1 of 2 has a NaN or infinity
? 1
$ tensors make in good:F32:3x3 count:I64:3x4
$ muonctl ortho in out
2> muonctl: ortho: tensor 'count': dtype is I64, must be F32, BF16, F16 or F64
? 1
$ tensors make in good:F32:3x3
$ muonctl ortho missing out
2> muonctl: ortho: missing: cannot be opened: No such file or directory
? 1
$ muonctl ortho in no/such/dir/out
2> muonctl: ortho: no/such/dir/out: its directory cannot be opened: No such file or directory
? 1
$ muonctl ortho in .
2> muonctl: ortho: .: is a directory
? 1
$ echo "not a file of tensors at all" >text && muonctl ortho text out
2> muonctl: ortho: text: header length is 7594793423135338350, more than 100000000: not a safetensors file
? 1
$ head -c 40 in >short && muonctl ortho short out
2> muonctl: ortho: short: header length is 64, but the file has only 40 bytes
? 1
$ : >nothing && muonctl ortho nothing out
2> muonctl: ortho: nothing: 0 bytes are too few for a safetensors file
? 1
$ ls
in
nothing
short
text

# An output that was there before is kept.
$ muonctl ortho in out >log && cp out before && tensors make in bad:F32:2x2:nan && muonctl ortho in out
2> muonctl: ortho: tensor 'bad': matrix 0 of 1 has a NaN or infinity
? 1
$ cmp out before
