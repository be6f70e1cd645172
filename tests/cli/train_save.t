# Runs that are stopped and go on.
$ seq 1 3000 >text
$ tiny="--model tiny --layers 1 --width 32 --heads 2 --kv-heads 1 --hidden 48 --context 16 --batch 8 --validate-every 2 --validate-with 8 --data text --sample 0"
$ small() { muonctl train $tiny "$@"; }
$ losses() { grep -o '"run":"[A-Za-z]*","step":[0-9]*,"loss":[^,]*\(,"validation_loss":[^,]*\)\?' $1/metrics.jsonl; }
$ same() { cmp $1/params.safetensors $2/params.safetensors && losses $1 >want && losses $2 >got && cmp want got; }

# The same command line, started again, goes on. What is saved is shown among the progress.
$ small --steps 6 --out whole --quiet >table
$ small --steps 6 --save ck --save-every 2 --keep 2 --resume --out run >table 2>log
$ sed 's/  loss.*//; s/([0-9.]* s)/(N s)/; s/^Muon: tiny.*/Muon: tiny .../' log
Muon: no complete checkpoint in ck; the run starts from scratch
Muon: tiny ...
step 1/6
step 2/6
saved step 2 (N s)
step 4/6
saved step 4 (N s)
step 6/6
saved step 6 (N s)
$ ls ck && same whole run
latest
step-00000004
step-00000006

# A run that is complete has nothing left to do, however often it is started.
$ small --steps 6 --save ck --save-every 2 --keep 2 --resume --out run
run     steps skipped      loss  validation      best   tokens/s   optimizer    time
Muon        6       0         -    * - (glob)

wrote run/params.safetensors
2> Muon: resumed after step 6, from ck/step-00000006
2> Muon: tiny, * (glob)
2> muonctl: train: note: no steps are left: metrics, trace and report do not change
$ same whole run && wc -l <run/metrics.jsonl | tr -d ' '
6

# It can be made longer. What differs from when it was saved is noted, also with --quiet.
$ small --steps 9 --lr 0.02 --save ck --resume --out run --quiet | cut -c1-21
run     steps skipped
Muon        9       0

wrote run/params.safe
wrote run/metrics.jso
wrote run/trace.json
wrote run/report.html
2> muonctl: train: note: Muon: steps was 6 until step 6, and is now 9
2> muonctl: train: note: Muon: lr was 0.01* until step 6, and is now 0.02* (glob)
$ losses run | cut -d: -f3 | cut -d, -f1 | paste -sd' '
1 2 3 4 5 6 7 8 9
$ grep -o '"resumed":6' run/report.html
"resumed":6

# Killed without a warning: what was saved last is what it goes on from. (Without warmup and decay the
# number of steps makes no difference to a step.)
$ flat="--warmup 0 --decay 0 --quiet"
$ rm -rf run; $MUONCTL train $tiny $flat --steps 100000 --save killed --save-every 3 --keep 3 --save-async --out run >table & pid=$!; until [ -e killed/latest ]; do sleep 0.02; done; kill -KILL $pid; wait $pid 2>kill.log
? 137
$ steps=$(($(readlink killed/latest | sed 's/step-0*//') + 5)); small $flat --steps $steps --out whole >table
$ small $flat --steps $steps --save killed --save-every 3 --save-async --resume --out run >table; same whole run
2> muonctl: train: note: Muon: steps was 100000 until step * (glob)

# Interrupted: the step that it was in is saved.
$ rm -rf run; $MUONCTL train $tiny $flat --steps 100000 --save stopped --resume --out run >table & pid=$!; until [ -s run/metrics.jsonl ]; do sleep 0.05; done; kill -TERM $pid; wait $pid
? 130
$ last=$(wc -l <run/metrics.jsonl); ls stopped | tail -1 | sed 's/step-0*//' >saved; echo $last | cmp - saved
$ small $flat --steps $((last + 2)) --save stopped --resume --out run >table 2>log; wc -l <run/metrics.jsonl | sed "s/^ *$((last + 2))$/all of them/"
all of them

# From any checkpoint, with state in memory or in a file.
$ small --steps 8 --save a --save-every 4 --out whole --quiet >table
$ small --steps 8 --from a/step-00000004 --save b --out run --offload . --ram-budget 100K --quiet >table; cmp whole/params.safetensors run/params.safetensors; ls b
latest
step-00000008
$ losses whole | tail -4 >x; losses run | cmp - x

# Two runs have a directory each.
$ small --steps 4 --save both --compare adamw --quiet >table; ls both/*
both/adamw:
latest
step-00000004

both/muon:
latest
step-00000004
$ small --steps 6 --save both --compare adamw --resume 2>&1 | grep '^[A-Z][A-Za-z]*: resumed'
Muon: resumed after step 4, from both/muon/step-00000004
AdamW: resumed after step 4, from both/adamw/step-00000004

# A damaged checkpoint is named, and the one before it is taken.
$ small --steps 6 --save hurt --save-every 2 --out whole --quiet >table
$ printf x | dd of=hurt/step-00000006/model.safetensors bs=1 seek=20000 conv=notrunc 2>dd.log
$ small --steps 6 --save hurt --save-every 2 --resume --out run >table 2>log; grep 'note\|resumed' log; cmp whole/params.safetensors run/params.safetensors
muonctl: train: note: *model.safetensors* (glob)
Muon: resumed after step 4, from hurt/step-00000004

# All that were there are damaged: no reason to begin again, and nothing is overwritten.
$ small --steps 2 --save lost --quiet >table; truncate -s -1 lost/step-00000002/model.safetensors
$ small --steps 4 --save lost --resume; ls lost
latest
step-00000002
2> muonctl: train: lost/step-00000002/model.safetensors: has 110263 bytes instead of 110264
$ small --steps 4 --save lost; ls lost
latest
step-00000002
2> muonctl: train: lost/step-00000002/model.safetensors: has 110263 bytes instead of 110264

# What does not fit.
$ small --steps 6 --save hurt
2> muonctl: train: hurt: there is a checkpoint of step 6, which this run, from step 0 on, would overwrite; resume from it, or save elsewhere
? 1
$ small --steps 5 --save hurt --resume
2> muonctl: train: hurt/step-00000006: the run is already at step 6, and only 5 steps are requested
? 1
$ small --steps 9 --save hurt --resume --top-k 3 --expert-hidden 8 --experts 4 2>&1 | cut -d';' -f1
muonctl: train: hurt/step-00000006: does not fit this run: experts is 0 there and 4 here, top_k is 0 there and 3 here, expert_hidden is 0 there and 8 here
$ small --steps 9 --save hurt --resume --optimizer adamw
2> muonctl: train: hurt/step-00000006: does not fit this run: optimizer is muon there and adamw here
? 1
$ small --steps 9 --save hurt --resume --variant cautious
2> muonctl: train: hurt/step-00000006: does not fit this run: optimizer is muon there and cautious here
? 1
$ small --steps 2 --save rows --variant normuon --quiet >table; small --steps 4 --save rows --resume --quiet
2> muonctl: train: rows/step-00000002: does not fit this run: optimizer is normuon there and muon here
? 1
$ small --steps 4 --save rows --resume --variant normuon 2>&1 | grep '^[A-Z][A-Za-z]*: resumed'
NorMuon: resumed after step 2, from rows/step-00000002
$ small --from none
2> muonctl: train: none: there is no checkpoint, and no such directory
? 1
$ mkdir empty && small --from empty
2> muonctl: train: empty* (glob)
? 1
$ small --save text
2> muonctl: train: 'text' is not a directory
? 1
$ small --save no/such
2> muonctl: train: cannot create the directory 'no/such': No such file or directory
? 1
$ muonctl train --data none --save fresh; test -e fresh
2> muonctl: train: none: cannot be opened: No such file or directory
? 1
$ small --offload none --ram-budget 1G
2> muonctl: train: none: * No such file or directory (glob)
? 1
$ small --offload . --ram-budget 10
2> muonctl: train: offloading needs at least * bytes of memory for state, the budget is 10 (glob)
? 1

# Options that make no sense alone.
$ small --save-every 3
2> muonctl: train: --save-every: needs --save DIR
2> try: muonctl train --help
? 2
$ small --keep 3
2> muonctl: train: --keep: needs --save DIR
2> try: muonctl train --help
? 2
$ small --save-async
2> muonctl: train: --save-async: needs --save DIR
2> try: muonctl train --help
? 2
$ small --resume
2> muonctl: train: --resume: needs --save DIR
2> try: muonctl train --help
? 2
$ small --from ck --compare adamw
2> muonctl: train: --from: a checkpoint has the state of one optimizer, and --compare trains with two
2> try: muonctl train --help
? 2
$ small --save-every 0 --save x
2> muonctl: train: --save-every: 0 is not in 1..1e+08
2> try: muonctl train --help
? 2
$ small --offload .
2> muonctl: train: --offload: needs --ram-budget SIZE, the memory for the state
2> try: muonctl train --help
? 2
$ small --ram-budget 1G
2> muonctl: train: --ram-budget: needs --offload DIR
2> try: muonctl train --help
? 2
$ for size in 3x 0 -1 1GB G nan 1e30 ''; do small --offload . --ram-budget=$size 2>&1 | head -1; done
muonctl: train: --ram-budget: '3x' is not a size like 300000, 500M or 1.5G
muonctl: train: --ram-budget: '0' is not a size like 300000, 500M or 1.5G
muonctl: train: --ram-budget: '-1' is not a size like 300000, 500M or 1.5G
muonctl: train: --ram-budget: '1GB' is not a size like 300000, 500M or 1.5G
muonctl: train: --ram-budget: 'G' is not a size like 300000, 500M or 1.5G
muonctl: train: --ram-budget: 'nan' is not a size like 300000, 500M or 1.5G
muonctl: train: --ram-budget: '1e30' is not a size like 300000, 500M or 1.5G
muonctl: train: --ram-budget: the SIZE is empty
