# A model in several files, by a Hugging Face index: the same step as on one file, and the same split.
$ tensors make all w:F32:8x12 v:F32:6x4 b:F32:12 ids:I64:3 && tensors make grads w:F32:8x12 v:F32:6x4:2 b:F32:12
$ mkdir m && tensors make m/model-1.safetensors w:F32:8x12 v:F32:6x4 && tensors make m/model-2.safetensors b:F32:12 ids:I64:3
$ index() { printf '{"metadata": {"total_size": 1, "by": "hand"}, "weight_map": {%s}}' "$1" >m/model.safetensors.index.json; }
$ index '"b": "model-2.safetensors", "ids": "model-2.safetensors", "v": "model-1.safetensors", "w": "model-1.safetensors"'
$ echo '{"classify": {"frozen": "ids"}}' >c.json
$ muonctl step --config c.json --params all --grads grads --out one >log
$ muonctl step --config c.json --params m/model.safetensors.index.json --grads grads --out two | grep wrote
wrote two/model-1.safetensors
wrote two/model-2.safetensors
wrote two/model.safetensors.index.json
wrote two/state
$ tensors show two/model-2.safetensors
ids I64 3
b F32 12
$ cat two/model.safetensors.index.json
{
  "metadata": {
    "by": "hand",
    "total_size": 552
  },
  "weight_map": {
    "b": "model-2.safetensors",
    "ids": "model-2.safetensors",
    "v": "model-1.safetensors",
    "w": "model-1.safetensors"
  }
}
$ same() { for t in w v; do tensors values one/params.safetensors $t >x; tensors values $1/model-1.safetensors $t | cmp x -; done; tensors values one/params.safetensors b >x; tensors values $1/model-2.safetensors b | cmp x -; for t in w.momentum_buffer v.momentum_buffer b.exp_avg_sq; do tensors values one/state/latest/optimizer.safetensors $t >x; tensors values $1/state/latest/optimizer.safetensors $t | cmp x -; done; }
$ same two

# A folder, or files with commas between them, gradients split in another way. Then the index is new.
$ tensors make g1 b:F32:12 w:F32:8x12 && tensors make g2 v:F32:6x4:2
$ muonctl step --config c.json --params m --grads g1,g2 --out three >log && same three && cmp two/model.safetensors.index.json three/model.safetensors.index.json
$ muonctl step --config c.json --params m/model-1.safetensors,m/model-2.safetensors --grads g2,g1 --out four >log && same four && grep -c '"by"' four/model.safetensors.index.json
0
? 1
$ mkdir single && cp all single/model.safetensors && muonctl step --config c.json --params single --grads grads --out five >log && cmp one/params.safetensors five/params.safetensors

# The next step takes the results where it took the weights; a name with a comma is a name.
$ muonctl step --config c.json --params two --grads grads --state two/state --out six >log && muonctl step --config c.json --params one/params.safetensors --grads grads --state one/state --out one >log && same six
$ cp all 'a,b' && muonctl step --config c.json --params 'a,b' --grads grads --out seven >log && ls seven
params.safetensors
state

# explain and plan.
$ muonctl explain --config c.json --params m | head -5
parameter  shape    rule    matrices  factor  algorithm  rank
w          [8, 12]  muon    [8, 12]   0.6928  gram       0
v          [6, 4]   muon    [6, 4]    0.4899  gram       0
ids        [3]      frozen
b          [12]     adamw
$ for p in m m/model.safetensors.index.json 'm/model-1.safetensors m/model-2.safetensors'; do muonctl plan $p --mesh fsdp=2 | grep -v made; muonctl plan $p --mesh fsdp=2 --config c.json | sed -n 4p; done | grep 'on 2 ranks\|^matrices'
m on 2 ranks: fsdp 2
matrices    2 in 2 tensors, 120 parameters, 13.2 kflop per step
matrices    2 in 2 tensors, 120 parameters, 13.2 kflop per step
model.safetensors.index.json on 2 ranks: fsdp 2
matrices    2 in 2 tensors, 120 parameters, 13.2 kflop per step
matrices    2 in 2 tensors, 120 parameters, 13.2 kflop per step
model-1.safetensors and 1 more on 2 ranks: fsdp 2
matrices    2 in 2 tensors, 120 parameters, 13.2 kflop per step
matrices    2 in 2 tensors, 120 parameters, 13.2 kflop per step

# An index with other keys keeps them.
$ cp -r m n && sed 's/^{/{"own": [1], /' m/model.safetensors.index.json >n/model.safetensors.index.json && muonctl step --config c.json --params n --grads grads --out eight >log && grep -A2 own eight/model.safetensors.index.json
  "own": [
    1
  ],

# What is wrong is named, and nothing is written.
$ try() { muonctl step --config c.json --params ${1-m} --grads ${2-grads} --out out; }
$ index '"w": "model-1.safetensors", "v": "model-1.safetensors", "b": "model-3.safetensors"' && try
2> muonctl: step: m/model-3.safetensors: cannot be opened: No such file or directory
? 1
$ index '"w": "model-1.safetensors", "v": "model-2.safetensors", "b": "model-2.safetensors", "ids": "model-2.safetensors"' && try
2> muonctl: step: m/model.safetensors.index.json: tensors that are not in their files: 'v (model-2.safetensors)'
? 1
$ index '"w": "model-1.safetensors", "b": "model-2.safetensors"' && try
2> muonctl: step: m/model.safetensors.index.json: tensors in files that it does not name: 'v (model-1.safetensors)', 'ids (model-2.safetensors)'
? 1
$ index '"w": "model-1.safetensors", "w": "model-2.safetensors"' && try
2> muonctl: step: m/model.safetensors.index.json: line 1, column *: duplicate object key near '"w"' (glob)
? 1
$ for f in ../all "$PWD/all" m/../../all .. . ''; do index "\"w\": \"$f\"" && try 2>&1 | sed "s|$PWD|HERE|"; done
muonctl: step: m/model.safetensors.index.json: weight_map.w: '../all' is not the name of a file beside the index
muonctl: step: m/model.safetensors.index.json: weight_map.w: 'HERE/all' is not the name of a file beside the index
muonctl: step: m/model.safetensors.index.json: weight_map.w: 'm/../../all' is not the name of a file beside the index
muonctl: step: m/model.safetensors.index.json: weight_map.w: '..' is not the name of a file beside the index
muonctl: step: m/model.safetensors.index.json: weight_map.w: '.' is not the name of a file beside the index
muonctl: step: m/model.safetensors.index.json: weight_map.w: '' is not the name of a file beside the index
$ index '"w": 1' && try
2> muonctl: step: m/model.safetensors.index.json: weight_map.w: is a number, must be a string
? 1
$ index '' && try
2> muonctl: step: m/model.safetensors.index.json: weight_map: is empty
? 1
$ echo '{"weight_map": []}' >i.json && try i.json
2> muonctl: step: i.json: weight_map: is a list, must be an object
? 1
$ echo '{"weight_map": {"w": "all"}, "metadata": 3}' >i.json && try i.json
2> muonctl: step: i.json: metadata: is a number, must be an object
? 1
$ echo '{}' >i.json && try i.json
2> muonctl: step: i.json: the key 'weight_map' is missing
? 1
$ try all,none
2> muonctl: step: none: cannot be opened: No such file or directory
? 1
$ try all,grads
2> muonctl: step: tensor 'b' is in all and in grads
? 1
$ mkdir empty && try empty
2> muonctl: step: empty: has neither model.safetensors.index.json nor model.safetensors
? 1

# Names that would meet in the results.
$ mkdir a b && tensors make a/x w:F32:8x12 && tensors make b/x v:F32:6x4 && try a/x,b/x
2> muonctl: step: a/x and b/x have the same name, and so would the results
? 1
$ tensors make state v:F32:6x4 && try a/x,state
2> muonctl: step: state: a file of weights cannot be called 'state', as a result is
? 1
$ test -e out
? 1
