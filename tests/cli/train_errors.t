# Whatever is wrong is said before any step is taken.
$ seq 1 3000 >text
$ small() { muonctl train --model tiny --layers 1 --width 32 --heads 2 --kv-heads 1 --hidden 48 --context 16 --batch 4 --steps 2 --sample 0 --quiet "$@"; }

# Data.
$ small --data none
2> muonctl: train: none: cannot be opened: No such file or directory
? 1
$ small --data .
2> muonctl: train: .: cannot be read: Is a directory
? 1
$ : >empty && small --data empty
2> muonctl: train: empty: 0 bytes; with a context of 16 at least 34 are needed, 17 to train on and 17 to validate with
? 1
$ echo 'too little to learn from' >little && small --data little
2> muonctl: train: little: 25 bytes; with a context of 16 at least 34 are needed, 17 to train on and 17 to validate with
? 1

# Models.
$ muonctl train --model smal
2> muonctl: train: --model: unknown model 'smal'; known: tiny, small, medium, moe, mla; did you mean 'small'?
2> try: muonctl train --help
? 2
$ muonctl train --top-k 9 --experts 4
2> muonctl: train: the model does not fit: * (glob)
2> try: muonctl train --help
? 2
$ muonctl train --width 0
2> muonctl: train: the model does not fit: width is 0, must be * (glob)
2> try: muonctl train --help
? 2
$ muonctl train --model-file none.json
2> muonctl: train: none.json: cannot be opened: No such file or directory
? 1
$ echo '{"layres": 3}' >typo.json && muonctl train --model-file typo.json
2> muonctl: train: typo.json: layres: unknown key; did you mean 'layers'?
? 1
$ echo '{"attention": "mqa"}' >kind.json && muonctl train --model-file kind.json
2> muonctl: train: kind.json: attention: * (glob)
? 1

# Options.
$ muonctl train --step 3
2> muonctl: train: unknown option '--step'; did you mean '--steps'?
2> try: muonctl train --help
? 2
$ small --data text --optimizer sgd
2> muonctl: train: --optimizer: unknown optimizer 'sgd'; optimizers: muon, adamw
2> try: muonctl train --help
? 2
$ small --data text --compare muon
2> muonctl: train: --compare: the run already uses muon
2> try: muonctl train --help
? 2
$ small --data text --variant normoun
2> muonctl: train: --variant: unknown variant 'normoun'; known: normuon, normuon-long, adamuon, muoneq, muon-plus, polargrad, cautious, nanochat, int8, lion; did you mean 'normuon'?
2> try: muonctl train --help
? 2
$ small --data text --variant muon
2> muonctl: train: --variant: unknown variant 'muon'; known: * (glob)
2> try: muonctl train --help
? 2
$ small --data text --compare adaw
2> muonctl: train: --compare: unknown optimizer 'adaw'; known: muon, adamw, normuon, * (glob)
2> try: muonctl train --help
? 2
$ small --data text --optimizer adamw --variant normuon
2> muonctl: train: --variant: needs --optimizer muon
2> try: muonctl train --help
? 2
$ small --data text --variant normuon --compare normuon
2> muonctl: train: --compare: the run already uses normuon
2> try: muonctl train --help
? 2
$ small --data text --warmup 0.7 --decay 0.5
2> muonctl: train: schedule: warmup 0.7 and decay 0.5 are parts of the run, together at most 1
2> try: muonctl train --help
? 2
$ small --data text --mesh fsdp=2
2> muonctl: train: --mesh: an axis of 2 ranks, but there is 1
2> try: muonctl train --help
? 2
$ small --data text --mesh tp=2
2> muonctl: train: --mesh: the model has no tensor parallelism, tp must be 1
2> try: muonctl train --help
? 2
$ small --data text --mesh fdsp=1
2> muonctl: train: --mesh: unknown axis 'fdsp'; axes: replicate, fsdp, ep, tp; did you mean 'fsdp'?
2> try: muonctl train --help
? 2
$ small --data text --backend none
2> muonctl: train: --backend: * (glob)
2> try: muonctl train --help
? 2
$ small extra
2> muonctl: train: unexpected argument 'extra'
2> try: muonctl train --help
? 2

# Places that cannot be written to.
$ small --data text --out text
2> muonctl: train: 'text' is not a directory
? 1
$ small --data text --out no/such/dir
2> muonctl: train: cannot create the directory 'no/such/dir': No such file or directory
? 1
$ small --data text --metrics no/such/file
2> muonctl: train: cannot write to the directory 'no/such/': No such file or directory
? 1
$ small --data text --report no/such/file
2> muonctl: train: cannot write to the directory 'no/such/': No such file or directory
? 1
$ mkdir dir && small --data text --trace dir
2> muonctl: train: cannot write to 'dir': it is a directory
? 1
$ small --data none --out fresh; test -e fresh
2> muonctl: train: none: cannot be opened: No such file or directory
? 1

# More memory than there is; a sanitizer says so, too.
$ muonctl train --model medium --layers 1000 --width 131072 --batch 1000000 --micro-batch 1000000 --data text 2>&1 | grep -v WARNING
muonctl: train: no memory for a model of 1000 layers of width 131072 with 1000000 x 256 tokens at a time; a smaller micro-batch needs less

# A learning rate that makes weights infinite: all steps are skipped, and ten in a row are enough. What
# was measured until then is there.
$ muonctl train --model tiny --layers 1 --width 32 --heads 2 --kv-heads 1 --hidden 48 --context 16 --batch 4 --steps 50 --sample 0 --quiet --data text --lr 1e6 --adamw-lr 1e6 --weight-decay 1e6 --clip 0 --warmup 0 --metrics lines
2> muonctl: train: Muon: the loss or a gradient was NaN or infinity in steps * to *, which were skipped; nothing changes any more. A smaller learning rate may help (glob)
? 1
$ grep -c '"skipped":true' lines
10

# Ctrl-C: the step is finished, everything is written, and the exit code says why.
$ interrupted() { $MUONCTL train --model tiny --layers 1 --width 32 --heads 2 --kv-heads 1 --hidden 48 --context 16 --batch 4 --steps 1000000 --sample 0 --quiet --compare adamw --data text --out $1 >table & pid=$!; until [ -s $1/metrics.jsonl ]; do sleep 0.05; done; kill -$1 $pid; wait $pid; }
$ interrupted INT
? 130
$ ls INT
metrics.jsonl
params.safetensors
report.html
trace.json
$ grep -c '^Muon \|^AdamW ' table
1
$ interrupted TERM
? 130
$ interrupted USR1
? 130
$ tail -1 INT/metrics.jsonl | grep -c '"validation_loss":'
1
