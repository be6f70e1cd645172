# A run on a text of one's own, small enough to be over at once.
$ seq 1 3000 >text
$ small() { muonctl train --model tiny --layers 1 --width 32 --heads 2 --kv-heads 1 --hidden 48 --context 16 --batch 8 --validate-every 2 --validate-with 8 --data text "$@"; }
$ small --steps 4 --sample 12 --prompt 7 --out run 2>log
run     steps skipped      loss  validation      best   tokens/s   optimizer    time
Muon        4       0 *  * %    0:0? (glob)

Muon writes:
7* (glob)
...
wrote run/params.safetensors
wrote run/metrics.jsonl
wrote run/trace.json
wrote run/report.html

# Progress in a file: what is trained, the first step, then each validation.
$ cat log
Muon: tiny, 1 layers of width 32, * M parameters; text, 0.01 MB; 8 x 16 tokens a step; 1 rank, * (glob)
step 1/4  loss 5.* val 5.* tokens/s  optimizer * %  ETA 0:0? (glob)
step 2/4  loss * (glob)
step 4/4  loss * (glob)
$ small --steps 2 --sample 0 --quiet | wc -l | tr -d ' '
2

# Metrics: a line for each step, whose keys are in training.md; numbers are those of the table.
$ wc -l <run/metrics.jsonl | tr -d ' '
4
$ tail -1 run/metrics.jsonl | grep -o '^{"run":"Muon","step":4,"loss":\|"skipped":false\|"clipped_heads":0' | paste -sd' '
{"run":"Muon","step":4,"loss": "clipped_heads":0 "skipped":false
$ grep -c '"validation_loss":' run/metrics.jsonl
2
$ grep -o '"[a-z_]*":' run/metrics.jsonl | tr -d '":' | sort -u | while read k; do grep -q "\`$k\`" $DOCS/training.md || echo "$k is not in training.md"; done

# Weights: the model's tensors, in whole.
$ tensors show run/params.safetensors | grep attn
layers.0.attn_norm F32 32
layers.0.attn.wq F32 64x32
layers.0.attn.wk F32 32x32
layers.0.attn.wv F32 32x32
layers.0.attn.wo F32 32x64

# The same seed, the same run; another seed, another one.
$ losses() { grep -o '"loss":[^,]*' $1/metrics.jsonl; }
$ small --steps 4 --sample 0 --quiet --threads 1 --out again >table && losses run >a && losses again >b && cmp a b && cmp run/params.safetensors again/params.safetensors
$ small --steps 4 --sample 0 --quiet --seed 2 --out other >table && losses other >b; cmp -s a b
? 1

# Units of a fixed number change the order of sums, and so the last digits only.
$ small --steps 4 --sample 0 --quiet --deterministic --out fixed >table && losses fixed | cut -c1-12 >b && cut -c1-12 a | cmp - b

# Both optimizers on the same data: the first loss is the same.
$ small --steps 3 --sample 0 --quiet --compare adamw --metrics both.jsonl | cut -c1-21
run     steps skipped
Muon        3       0
AdamW       3       0

wrote both.jsonl
$ grep -c '"run":"AdamW"' both.jsonl
3
$ grep '"step":1,' both.jsonl | grep -o '"loss":[^,]*' | uniq | wc -l | tr -d ' '
1
$ small --steps 2 --sample 0 --quiet --optimizer adamw --compare muon | cut -c1-6
run   
AdamW 
Muon  

# A variant of Muon on the same data, and against plain Muon; the result has its name.
$ small --steps 3 --sample 0 --quiet --variant normuon --compare muon --metrics both.jsonl --report both.html | cut -c1-22
run      steps skipped
NorMuon      3       0
Muon         3       0

wrote both.jsonl
wrote both.html
$ grep -o '"run":"[A-Za-z]*"' both.jsonl | uniq -c | tr -s ' '
 3 "run":"NorMuon"
 3 "run":"Muon"
$ grep '"step":1,' both.jsonl | grep -o '"loss":[^,]*' | uniq | wc -l | tr -d ' '
1
$ grep -o '"label":"[A-Za-z]*"\|"optimizer":"[a-z]*"' both.html | sort -u
"label":"Muon"
"label":"NorMuon"
"optimizer":"muon"
"optimizer":"normuon"
$ small --steps 2 --sample 0 --quiet --compare lion --save two | cut -c1-9; ls two
run      
Muon     
Muon-Lion
lion
muon
$ small --steps 2 --sample 0 --variant nanochat 2>&1 | head -1 | cut -d, -f1
nanochat: tiny

# Every variant can be trained; the help, the man page and training.md know it.
$ for v in $(muonctl train --list | sed '1,/^variant/d; s/ .*//'); do small --steps 2 --sample 0 --quiet --variant $v >table || echo "$v fails"; for text in "$(muonctl train --help)" "$(sed 's/\\//g' $DOCS/muonctl.1)" "$(cat $DOCS/training.md)"; do echo "$text" | grep -qw -- "$v" || echo "$v is not everywhere"; done; done

# Experts and latent attention, from a file over a named size.
$ echo '{"layers": 2, "width": 32, "hidden": 48, "context": 16, "heads": 2, "kv_heads": 2, "experts": 4, "top_k": 2, "expert_hidden": 16, "shared_hidden": 0, "dense_layers": 0}' >moe.json
$ muonctl train --model moe --model-file moe.json --data text --steps 2 --batch 4 --sample 0 2>&1 | head -1
Muon: moe.json, 2 layers of width 32, * M parameters; text, 0.01 MB; 4 x 16 tokens a step; * (glob)
$ echo '{"attention": "mla", "layers": 1, "width": 32, "hidden": 48, "context": 16, "heads": 2, "q_rank": 16, "kv_rank": 16, "nope_dim": 8, "rope_dim": 8, "v_dim": 8}' >mla.json
$ muonctl train --model-file mla.json --data text --steps 2 --batch 4 --sample 0 --quiet | cut -c1-21
run     steps skipped
Muon        2       0

# QK-clip takes part if it is asked to.
$ small --steps 2 --sample 0 --quiet --qk-clip 0.001 --metrics clip.jsonl >table && head -1 clip.jsonl | grep -o '"clipped_heads":[0-9]*'
"clipped_heads":2

# The named sizes.
$ muonctl train --list | head -3
model       parameters  layers   width  context  experts  attention
tiny* (glob)
small* (glob)
