# Kernels that BLIS does not have would make it abort: the command fails with a message of ours.
$ tensors make in w:F32:3x3
$ BLIS_ARCH_TYPE=999 muonctl ortho in out
2> muonctl: ortho: backend 'blis': BLIS_ARCH_TYPE is '999', which is not a kernel set; BLIS * would abort. Unset it, or set it to one of: * (generic) (glob)
? 1
$ BLIS_ARCH_TYPE=zen3 muonctl ortho in out --backend blis
2> muonctl: ortho: --backend: backend 'blis': BLIS_ARCH_TYPE is 'zen3', which is not a number; BLIS * (glob)
2> try: muonctl ortho --help
? 2
$ BLIS_ARCH_TYPE=-1 muonctl ortho in out
1 tensors, 1 matrices, * (glob)

# What does not need BLIS does without it; the model of the trainer does need it.
$ BLIS_ARCH_TYPE=999 muonctl ortho in out --backend reference
1 tensors, 1 matrices, * (glob)
$ seq 1 3000 >text
$ BLIS_ARCH_TYPE=999 muonctl train --model tiny --layers 1 --width 32 --heads 2 --kv-heads 1 --hidden 48 --context 16 --batch 4 --steps 2 --quiet --data text --backend reference
2> muonctl: train: backend 'blis': BLIS_ARCH_TYPE is '999', * (glob)
? 1

# The kernels in use are told.
$ generic=$(BLIS_ARCH_TYPE=999 muonctl ortho in out 2>&1 | sed 's/.* \([0-9]*\) (generic).*/\1/')
$ BLIS_ARCH_TYPE=$generic muonctl bench ns:4x4 --repeat 1 --min-time 0
{"problem":"ns:4x4",*"backend":"blis","version":*,"kernels":"generic"} (glob)
