# A root with two checkpoints, with settings, the caller's own entries and weights.
$ settings() { echo muon.format=1 muon.version=0.5.0 muon.ngroups=2 muon.group.0.name=hidden muon.group.0.rule=muon muon.group.0.lr=0.02 muon.group.0.momentum=0.90000000000000002 muon.group.0.momentum_form=ema muon.group.1.name=rest muon.group.1.rule=adamw muon.group.1.beta1=0.9 muon.param.w=0 muon.param.n=1; }
$ tensors save root 10 $(settings) data.position=17 w.momentum_buffer:F32:4x6 w.step:I64:-:10 n.exp_avg:F32:6 n.exp_avg_sq:F32:6:1,2,0 n.step:I64:-:10 w:BF16:4x6 n:F32:6
$ tensors save root 20 $(settings) data.position=34 w.momentum_buffer:F32:4x6 w.step:I64:-:20 n.exp_avg:F32:6:nan n.exp_avg_sq:F32:6:1,2,0.5 n.step:I64:-:20 w:BF16:4x6 n:F32:6:inf
$ muonctl ckpt ls root
checkpoint     tensors      bytes  state
step-00000010        7      232 B  complete
step-00000020        7      232 B  complete, latest
$ muonctl ckpt ls root --json
{"root":"root","newest":"step-00000020","latest":"step-00000020","checkpoints":[{"name":"step-00000010","step":10,"complete":true,"abandoned":false,"problem":null,"tensors":7,"bytes":232},{"name":"step-00000020","step":20,"complete":true,"abandoned":false,"problem":null,"tensors":7,"bytes":232}],"below":[]}
$ cp -r root back && tensors save back 15 $(settings) w.step:I64:-:15 && muonctl ckpt ls back
checkpoint     tensors      bytes  state
step-00000010        7      232 B  complete
step-00000015        1        8 B  complete, latest
step-00000020        7      232 B  complete, abandoned
$ muonctl ckpt ls back --json | sed 's/,"checkpoints.*,{"name":"step-00000020"/ .../'
{"root":"back","newest":"step-00000015","latest":"step-00000015" ...,"step":20,"complete":true,"abandoned":true,"problem":null,"tensors":7,"bytes":232}],"below":[]}
$ muonctl ckpt inspect back | head -1
back/step-00000015: step 15, libmuon 0.5.0, 1 tensors, 8 B
$ rm back/step-00000015/COMPLETE && muonctl ckpt ls back
checkpoint     tensors      bytes  state
step-00000010        7      232 B  complete
step-00000015        -          -  damaged: back/step-00000015: is not complete: it has no COMPLETE
step-00000020        7      232 B  complete
2> muonctl: ckpt ls: note: a load tries step-00000015 first, and takes step-00000020 only if it may fall back
$ rm -r back

# Damaged and abandoned: a load does not look at it.
$ cp -r root back && truncate -s 10 back/step-00000020/model.safetensors && tensors save back 15 $(settings) w.step:I64:-:15 && muonctl ckpt ls back
checkpoint     tensors      bytes  state
step-00000010        7      232 B  complete
step-00000015        1        8 B  complete, latest
step-00000020        -          -  damaged: back/step-00000020/model.safetensors: has 10 bytes instead of 280
$ printf x >>back/step-00000020/COMPLETE && rm back/latest && muonctl ckpt ls back | tail -1
step-00000020        -          -  damaged: back/step-00000020/COMPLETE: line 6: text after the end
2> muonctl: ckpt ls: note: a load tries step-00000020 first, and takes step-00000015 only if it may fall back
$ rm -r back

# A directory of runs: where to look instead.
$ mkdir -p runs/c/deep/deeper runs/.hidden runs/d && cp -r root runs/a && cp -r root/step-00000010 runs/c/deep && cp -r root runs/c/deep/deeper/far && cp -r root runs/.hidden && ln -s a runs/link && touch runs/file
$ muonctl ckpt ls runs/
2> muonctl: ckpt ls: note: runs/: no checkpoints here; below it: runs/a (2, newest step 20), runs/c/deep (1, newest step 10)
$ muonctl ckpt ls runs --json
{"root":"runs","newest":null,"latest":null,"checkpoints":[],"below":[{"root":"runs/a","checkpoints":2,"newest":20},{"root":"runs/c/deep","checkpoints":1,"newest":10}]}
$ muonctl ckpt ls runs/c/deep/deeper
2> muonctl: ckpt ls: note: runs/c/deep/deeper: no checkpoints here; below it: runs/c/deep/deeper/far (2, newest step 20)
$ for i in 01 02 03 04 05 06 07 08 09 10 11 12; do cp -r root runs/d/$i; done; muonctl ckpt ls runs/d
2> muonctl: ckpt ls: note: runs/d: no checkpoints here; below it: runs/d/01 (2, newest step 20), runs/d/02 (2, newest step 20), runs/d/03 (2, newest step 20), runs/d/04 (2, newest step 20), runs/d/05 (2, newest step 20), runs/d/06 (2, newest step 20), runs/d/07 (2, newest step 20), runs/d/08 (2, newest step 20), runs/d/09 (2, newest step 20), runs/d/10 (2, newest step 20), and 2 more
$ muonctl ckpt ls runs/d --json | grep -o '"root":"[^"]*"' | tail -1
"root":"runs/d/12"
$ rm -r runs
$ muonctl ckpt verify root
root/step-00000020: 7 tensors, 232 B: as they were saved
read 232 B in * GB/s (glob)
$ muonctl ckpt verify root --all
root/step-00000020: 7 tensors, 232 B: as they were saved
root/step-00000010: 7 tensors, 232 B: as they were saved
read 464 B in * GB/s (glob)
$ muonctl ckpt verify root/step-00000010
root/step-00000010: 7 tensors, 232 B: as they were saved
read 232 B in * GB/s (glob)

# Statistics of the finite elements; a glob chooses tensors.
$ muonctl ckpt inspect root
root/step-00000020: step 20, libmuon 0.5.0, 7 tensors, 232 B
data.position: 34
muon.format: 1
group 0 'hidden': 1 parameter, rule muon, lr 0.02, momentum 0.9, momentum_form ema
group 1 'rest': 1 parameter, rule adamw, beta1 0.9

tensor            dtype shape                   min          max         mean          rms       absmax      zeros    nan    inf   crc32c
w.step            I64   scalar                   20           20           20           20           20          0      0      0 29433953
n.step            I64   scalar                   20           20           20           20           20          0      0      0 29433953
w.momentum_buffer F32   4x6                 -1.3887       1.8766     0.036681      0.87635       1.8766          0      0      0 a378e7f5
n.exp_avg         F32   6                   -1.1306      0.18572     -0.52484      0.68811       1.1306          0      1      0 6fc68ec5
n.exp_avg_sq      F32   6                       0.5            2       1.1667       1.3229            2          0      0      0 56569dd9
n                 F32   6                   -1.9445      0.23107     -0.45333      0.88733       1.9445          0      0      1 83c84da3
w                 BF16  4x6                 -1.3672       2.1875     0.072032       0.9124       2.1875          0      0      0 719d6490
$ muonctl ckpt inspect root/step-00000010 'n.*' w.step
root/step-00000010: step 10, libmuon 0.5.0, 7 tensors, 232 B
data.position: 17
muon.format: 1
group 0 'hidden': 1 parameter, rule muon, lr 0.02, momentum 0.9, momentum_form ema
group 1 'rest': 1 parameter, rule adamw, beta1 0.9

tensor       dtype shape                   min          max         mean          rms       absmax      zeros    nan    inf   crc32c
w.step       I64   scalar                   10           10           10           10           10          0      0      0 5c6b4c1e
n.step       I64   scalar                   10           10           10           10           10          0      0      0 5c6b4c1e
n.exp_avg    F32   6                   -1.1306      0.18572     -0.44779      0.62867       1.1306          0      0      0 258d6216
n.exp_avg_sq F32   6                         0            2            1        1.291            2          2      0      0 2cdcd36b
$ muonctl ckpt inspect root --json | tr ',' '\n' | head -8
{"path":"root/step-00000020"
"step":20
"metadata":{"data.position":"34"
"muon.format":"1"
"muon.group.0.lr":"0.02"
"muon.group.0.momentum":"0.90000000000000002"
"muon.group.0.momentum_form":"ema"
"muon.group.0.name":"hidden"
$ muonctl ckpt inspect root 'n.exp_avg_sq' --json | sed 's/.*"tensors"://'
[{"name":"n.exp_avg_sq","dtype":"F32","shape":[6],"bytes":24,"file":"optimizer.safetensors","offset":1064,"weight":false,"crc32c":"56569dd9","min":0.5,"max":2.0,"mean":1.16666667,"rms":1.32287566,"absmax":2.0,"zeros":0,"nan":0,"inf":0}]}

# A plain file; the fields that F16 and U8 have, too.
$ tensors make f s:F32:3:-1,0,2.5 h:F16:2x2 b:U8:4 i:I64:2:-7,9 e:F32:0x3 d:F64:2:1e-3,4
$ muonctl ckpt inspect f
f: 6 tensors, 56 B

tensor dtype shape                   min          max         mean          rms       absmax      zeros    nan    inf   crc32c
i      I64   2                        -7            9            1       8.0623            9          0      0      0        -
d      F64   2                     0.001            4       2.0005       2.8284            4          0      0      0        -
s      F32   3                        -1          2.5          0.5       1.5546          2.5          1      0      0        -
e      F32   0x3                       0            0            0            0            0          0      0      0        -
h      F16   2x2                       0            0            0            0            0          4      0      0        -
b      U8    4                         0            0            0            0            0          4      0      0        -
$ muonctl ckpt inspect root/step-00000010/optimizer.safetensors w.momentum_buffer | tail -1
w.momentum_buffer F32   4x6                 -1.3887       1.8766     0.036681      0.87635       1.8766          0      0      0 a378e7f5

# What differs, and what does not.
$ muonctl ckpt diff root/step-00000010 root
w.step: 1 of 1 elements differ, by 10 at most, 0.5 of the largest
n.step: 1 of 1 elements differ, by 10 at most, 0.5 of the largest
n.exp_avg: 1 of 6 elements differ, by inf at most, inf of the largest
n.exp_avg_sq: 2 of 6 elements differ, by 0.5 at most, 0.25 of the largest
n: 1 of 6 elements differ, by inf at most, inf of the largest
setting data.position: 17 in A, 34 in B
setting muon.step: 10 in A, 20 in B
tensors: 2 equal, 5 differ; settings: 2 differ
? 1
$ muonctl ckpt diff root root
tensors: 7 equal, 0 differ; settings: 0 differ
$ muonctl ckpt diff root/step-00000010 root 'w*buffer' n.exp_avg_sq --tolerance 0.3
tensors: 1 equal, 1 within 0.3, 0 differ
$ muonctl ckpt diff root/step-00000010 root n.exp_avg_sq
n.exp_avg_sq: 2 of 6 elements differ, by 0.5 at most, 0.25 of the largest
tensors: 0 equal, 1 differ
? 1
$ tensors make a x:F32:4:1,2,3,4 y:F32:2x2 z:F32:2:0 only_a:I64:- k:F32:2:nan
$ tensors make b x:F32:4:1,2,3,5 y:BF16:2x2 z:F32:2:-0 only_b:I64:3 k:F32:2:nan
$ muonctl ckpt diff a b
only in A: only_a (I64 scalar)
x: 1 of 4 elements differ, by 1 at most, 0.2 of the largest
y: F32 2x2 in A, BF16 2x2 in B
z: 2 of 2 elements differ in their bits, none in its value
only in B: only_b (I64 3)
tensors: 1 equal, 3 differ, 1 only in A, 1 only in B
? 1
$ muonctl ckpt diff a b --json | tr '{' '\n'

"a":"a","b":"b","equal":1,"close":0,"different":3,"only_a":1,"only_b":1,"tensors":[
"name":"only_a","a":
"dtype":"I64","shape":[]},"b":null,"different":null,"largest_difference":null,"relative":null},
"name":"x","a":
"dtype":"F32","shape":[4]},"b":
"dtype":"F32","shape":[4]},"different":1,"largest_difference":1.0,"relative":0.2},
"name":"y","a":
"dtype":"F32","shape":[2,2]},"b":
"dtype":"BF16","shape":[2,2]},"different":null,"largest_difference":null,"relative":null},
"name":"z","a":
"dtype":"F32","shape":[2]},"b":
"dtype":"F32","shape":[2]},"different":2,"largest_difference":0.0,"relative":0.0},
"name":"only_b","a":null,"b":
"dtype":"I64","shape":[3]},"different":null,"largest_difference":null,"relative":null}],"settings":null}
$ muonctl ckpt diff a b x --tolerance 0.2 --json
{"a":"a","b":"b","equal":0,"close":1,"different":0,"only_a":0,"only_b":0,"tensors":[],"settings":null}
$ muonctl ckpt diff root/step-00000010 root --json | sed 's/.*"settings"/"settings"/'
"settings":[{"group":null,"name":"data.position","a":"17","b":"34"},{"group":null,"name":"muon.step","a":"10","b":"20"}]}
$ muonctl ckpt diff root root --json
{"a":"root/step-00000020","b":"root/step-00000020","equal":7,"close":0,"different":0,"only_a":0,"only_b":0,"tensors":[],"settings":[]}
$ muonctl ckpt diff a b x --tolerance 0.2
tensors: 0 equal, 1 within 0.2, 0 differ
$ muonctl ckpt diff a b x --tolerance 0.19
x: 1 of 4 elements differ, by 1 at most, 0.2 of the largest
tensors: 0 equal, 1 differ
? 1

# Several files are one checkpoint.
$ tensors save one 1 w.momentum_buffer:F32:8x8 n.exp_avg:F32:40 n.exp_avg_sq:F32:40:1 w:F32:8x8
$ tensors save several 1 file_bytes=200 w.momentum_buffer:F32:8x8 n.exp_avg:F32:40 n.exp_avg_sq:F32:40:1 w:F32:8x8
$ ls several/step-00000001
COMPLETE
model.safetensors
optimizer-00001-of-00003.safetensors
optimizer-00002-of-00003.safetensors
optimizer-00003-of-00003.safetensors
optimizer.safetensors.index.json
$ muonctl ckpt diff one several
tensors: 4 equal, 0 differ
$ muonctl ckpt verify several
several/step-00000001: 4 tensors, 832 B: as they were saved
read 832 B in * GB/s (glob)
$ printf X | dd of=several/step-00000001/optimizer-00002-of-00003.safetensors bs=1 seek=20 conv=notrunc 2>dd.log; muonctl ckpt verify several
damaged: several/step-00000001/optimizer-00002-of-00003.safetensors: tensor '__metadataX_': unknown key 'format'
2> muonctl: ckpt verify: 1 of 1 checkpoints damaged, 0 of 0 tensors
? 1

# Groups are compared through their parameters: order and names do not matter.
$ tensors save left 1 muon.format=1 muon.ngroups=2 muon.group.0.name=m muon.group.0.lr=0.1 muon.group.1.name=a muon.group.1.lr=0.2 muon.param.w=0 muon.param.n=1 w.step:I64:-
$ tensors save right 1 muon.format=1 muon.ngroups=2 muon.group.1.name=first muon.group.1.lr=0.1 muon.group.0.name=second muon.group.0.lr=0.3 muon.param.w=1 muon.param.n=0 w.step:I64:- note=x
$ muonctl ckpt diff left right --json | sed 's/.*"settings"/"settings"/'
"settings":[{"group":null,"name":"note","a":null,"b":"x"},{"group":"group 1 'a', in B group 0 'second'","name":"lr","a":"0.2","b":"0.3"}]}
$ muonctl ckpt diff left right
setting note: (none) in A, x in B
setting group 1 'a', in B group 0 'second': lr: 0.2 in A, 0.3 in B
tensors: 1 equal, 0 differ; settings: 2 differ
? 1

# What callers write is text, whatever it looks like; fields of groups may be numbers.
$ tensors save left 2 muon.format=1 rng=12345678901234567890 hex=0x10 lr=0.10000000000000001 huge=1e999 release=1.10 muon.ngroups=1 muon.group.0.lr=0.1 muon.param.w=0 w.step:I64:-
$ tensors save right 2 muon.format=1 rng=12345678901234567891 hex=16 lr=0.10000000000000001 huge=1e999 release=1.1 muon.ngroups=1 muon.group.0.lr=0.10000000000000001 muon.param.w=0 w.step:I64:-
$ muonctl ckpt diff left right
setting hex: 0x10 in A, 16 in B
setting release: 1.10 in A, 1.1 in B
setting rng: 12345678901234567890 in A, 12345678901234567891 in B
tensors: 1 equal, 0 differ; settings: 3 differ
? 1
$ muonctl ckpt inspect left | sed -n 2,7p
hex: 0x10
huge: 1e999
lr: 0.1
muon.format: 1
release: 1.1
rng: 12345678901234567890
$ long=$(printf '%0150d' 7) && tensors save left 3 muon.format=1 plan=${long}1 w.step:I64:- && tensors save right 3 muon.format=1 plan=${long}2 w.step:I64:-
$ muonctl ckpt inspect left | sed -n '/^plan/s/0\{100\}/-/p'
plan: -00000000000000000000000000000000000000000000000007...
$ muonctl ckpt diff left right
setting plan: ...000000000000000000071 in A, ...000000000000000000072 in B
tensors: 1 equal, 0 differ; settings: 1 differ
? 1

# Damage is named: a bit of a tensor, a file that is cut, no marker, what a killed save left.
$ cp -r root/step-00000010 root/step-00000030 && rm root/step-00000030/COMPLETE
$ cp -r root/step-00000010 root/step-00000040 && dd if=/dev/null of=root/step-00000040/model.safetensors bs=1 seek=100 2>dd.log
$ mkdir root/.saving-step-00000050 root/unrelated
$ muonctl ckpt ls root
checkpoint             tensors      bytes  state
step-00000010                7      232 B  complete
step-00000020                7      232 B  complete, latest
step-00000030                -          -  damaged: root/step-00000030: is not complete: it has no COMPLETE
step-00000040                -          -  damaged: root/step-00000040/model.safetensors: has 100 bytes instead of 280
.saving-step-00000050        -          -  not complete: it is being saved, or a save was killed
2> muonctl: ckpt ls: note: a load tries step-00000040 first, and takes step-00000020 only if it may fall back
$ muonctl ckpt ls root --json | tr '{' '\n' | tail -1
"name":".saving-step-00000050","step":50,"complete":false,"abandoned":false,"problem":"not complete: it is being saved, or a save was killed","tensors":null,"bytes":null}],"below":[]}
2> muonctl: ckpt ls: note: a load tries step-00000040 first, and takes step-00000020 only if it may fall back
$ muonctl ckpt verify root
damaged: root/step-00000040/model.safetensors: has 100 bytes instead of 280
2> muonctl: ckpt verify: 1 of 1 checkpoints damaged, 0 of 0 tensors
? 1
$ rm -r root/step-0000003? root/step-0000004?
$ size=$(wc -c <root/step-00000010/optimizer.safetensors) && printf X | dd of=root/step-00000010/optimizer.safetensors bs=1 seek=$((size - 2)) conv=notrunc 2>dd.log
$ muonctl ckpt ls root | tail -3
step-00000010                7      232 B  complete
step-00000020                7      232 B  complete, latest
.saving-step-00000050        -          -  not complete: it is being saved, or a save was killed
$ muonctl ckpt verify root --all
root/step-00000020: 7 tensors, 232 B: as they were saved
damaged: root/step-00000010/optimizer.safetensors: tensor 'n.exp_avg_sq': its checksum is 711a2756, saved as 2cdcd36b: the file is damaged
root/step-00000010: 7 tensors, 232 B: 1 damaged
read 464 B in * GB/s (glob)
2> muonctl: ckpt verify: 1 of 2 checkpoints damaged, 1 of 14 tensors
? 1
$ muonctl ckpt convert root/step-00000010 out --momentum heavy_ball
2> muonctl: ckpt convert: root/step-00000010/optimizer.safetensors: tensor 'n.exp_avg_sq': its checksum is 711a2756, saved as 2cdcd36b: the file is damaged
? 1
$ muonctl ckpt export root/step-00000010 out.safetensors --to torch
2> muonctl: ckpt export: root/step-00000010/optimizer.safetensors: tensor 'n.exp_avg_sq': its checksum is 711a2756, saved as 2cdcd36b: the file is damaged
? 1
$ test -e out || test -e out.safetensors || echo none
none

# What does not have the name that a root looks for, or is a link, does not count.
$ mkdir moved && cp -r root/step-00000020 moved/step-00000020 && cp -r root/step-00000020 moved/step-99 && cp -r root/step-00000020 moved/step-00000007 && ln -s step-00000020 moved/latest
$ muonctl ckpt ls moved
checkpoint     tensors      bytes  state
step-00000007        -          -  complete, but it does not count: its name is not step-00000020 of its marker
step-00000020        7      232 B  complete, latest
step-99              -          -  complete, but it does not count: its name is not step-00000020 of its marker
$ muonctl ckpt ls moved --json | grep -o '"newest":"[^"]*"'
"newest":"step-00000020"
$ muonctl ckpt verify moved | head -1
moved/step-00000020: 7 tensors, 232 B: as they were saved
$ mv moved/step-00000007 moved/step-00000030 && muonctl ckpt ls moved | tail -2
step-00000030        -          -  complete, but it does not count: its name is not step-00000020 of its marker
step-99              -          -  complete, but it does not count: its name is not step-00000020 of its marker
2> muonctl: ckpt ls: note: a load tries step-00000030 first, and takes step-00000020 only if it may fall back
$ rm -r moved/step-00000030 && mv moved/step-00000020 there && ln -s ../there moved/step-00000020 && muonctl ckpt ls moved
checkpoint     tensors      bytes  state
step-00000020        -          -  complete, but it does not count: it is a link
step-99              -          -  complete, but it does not count: its name is not step-00000020 of its marker
$ mkdir moved/step-00000050 && muonctl ckpt ls moved | tail -1
step-99              -          -  complete, but it does not count: its name is not step-00000020 of its marker
2> muonctl: ckpt ls: note: a load tries step-00000050 first, and there is none to fall back to

# The link is for people; a load looks for itself.
$ ln -sfn step-00000010 root/latest && muonctl ckpt ls root | tail -3
step-00000010                7      232 B  complete, latest
step-00000020                7      232 B  complete
.saving-step-00000050        -          -  not complete: it is being saved, or a save was killed
2> muonctl: ckpt ls: note: step-00000020 is what a load takes, but 'latest' points to step-00000010
$ rm root/latest && muonctl ckpt ls root | tail -3
step-00000010                7      232 B  complete
step-00000020                7      232 B  complete
.saving-step-00000050        -          -  not complete: it is being saved, or a save was killed
2> muonctl: ckpt ls: note: step-00000020 is what a load takes, but 'latest' does not exist

# Mistakes.
$ muonctl ckpt
2> muonctl: ckpt: a command is required
2> try: muonctl ckpt --help
? 2
$ muonctl ckpt verfy root
2> muonctl: ckpt: unknown command 'verfy'; did you mean 'verify'?
2> try: muonctl ckpt --help
? 2
$ muonctl ckpt --jsno
2> muonctl: ckpt: unknown option '--jsno'
2> try: muonctl ckpt --help
? 2
$ muonctl ckpt ls
2> muonctl: ckpt ls: missing operand ROOT
2> try: muonctl ckpt ls --help
? 2
$ muonctl ckpt ls nothing
2> muonctl: ckpt ls: nothing: No such file or directory
? 1
$ mkdir empty && muonctl ckpt ls empty
2> muonctl: ckpt ls: note: empty: there is no checkpoint
$ muonctl ckpt verify nothing
2> muonctl: ckpt verify: nothing: No such file or directory
? 1
$ muonctl ckpt verify root/step-00000099
2> muonctl: ckpt verify: root/step-00000099: No such file or directory
? 1
$ muonctl ckpt verify empty
2> muonctl: ckpt verify: empty: there is no checkpoint
? 1
$ muonctl ckpt ls root/step-00000020
2> muonctl: ckpt ls: root/step-00000020: it is a checkpoint, not a root of them
? 1
$ muonctl ckpt verify root/step-00000020 --all
2> muonctl: ckpt verify: --all: root/step-00000020 is one checkpoint, not a root
2> try: muonctl ckpt verify --help
? 2
$ muonctl ckpt inspect empty
2> muonctl: ckpt inspect: empty: there is no checkpoint in it
? 1
$ printf "12345678, and more text" >text && muonctl ckpt inspect text
2> muonctl: ckpt inspect: text: header length is 4050765991979987505, more than 100000000: not a safetensors file
? 1
$ muonctl ckpt inspect root 'x*'
2> muonctl: ckpt inspect: root/step-00000020: 'x*' matches none of its 7 tensors
? 1
$ muonctl ckpt diff root
2> muonctl: ckpt diff: missing operand B
2> try: muonctl ckpt diff --help
? 2
$ muonctl ckpt diff root nothing
2> muonctl: ckpt diff: nothing: No such file or directory
? 1
$ muonctl ckpt diff a b 'q*'
2> muonctl: ckpt diff: 'q*' matches no tensor of A or B
? 1
