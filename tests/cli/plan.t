# Every model of the built-in file, with what the field counts in it.
$ muonctl plan --list
model                parameters  tensors  matrices  largest
gpt2-124m                84.9 M       72        72  3072x768
llama3-8b                6.98 B      224       224  14336x4096
llama3-70b               68.5 B      560       560  28672x8192
llama3-405b               402 B      882       882  53248x16384
moonlight-16b            15.3 B      267     5,207  11264x2048
qwen3-30b-a3b            29.9 B      336    18,672  4096x2048
qwen3-235b-a22b           234 B      658    36,566  8192x4096
qwen3.5-397b-a17b         394 B      735    92,775  16384x4096
glm-4.5-355b              351 B      911    43,453  12288x5120
glm-5-744b                742 B    1,083    58,533  6144x16384
deepseek-v3-671b          669 B      662    45,090  18432x7168
kimi-k2-1t               1.02 T      668    69,668  18432x7168

# Text: all of it. Sizes of the mesh are multiplied.
$ muonctl plan qwen3-30b-a3b --mesh fsdp=8,ep=4,tp=2,replicate=2 >text && cat text
qwen3-30b-a3b on 128 ranks: replicate 2 x fsdp 8 x ep 4 x tp 2
cpu profile: a rank computes 1.50 Tflop/s and sends 20.0 GB/s inside a node, 6.00 GB/s between nodes; f32 wire; 16 nodes of 8

matrices    18,672 in 336 tensors, 29.9 B parameters, * per step (glob)
time        * predicted, * x the lower bound of * (*) (glob)
balance     the busiest rank works * x the mean; most matrices on a rank: * (glob)
bytes       * sent and received by a rank at most, * on average; padding 0 B (glob)
messages    * of the busiest rank, which is rank * (glob)
relays      * are passed on by a rank on their way (glob)
memory      * of workspace on a rank at most; * of state on rank 0 (glob)
plan        * wave*, hash ????????????????, made in * (glob)

scheme              time              bytes/rank               padding
this plan *1 x *1 x         0 B (glob)
round-robin * x * x         0 B (glob)
padded * x * x * (glob)

# One rank: nothing moves, and the bound is met.
$ muonctl plan gpt2-124m | sed -n '1p; 3,6p'
gpt2-124m on 1 rank

matrices    72 in 72 tensors, 84.9 M parameters, 750 Gflop per step
time        500 ms predicted, 1 x the lower bound of 500 ms (all work shared evenly)
balance     the busiest rank works 1 x the mean; most matrices on a rank: 72
$ muonctl plan gpt2-124m --mesh ep=1,tp=1 | head -1
gpt2-124m on 1 rank

# Names end at any hyphen, whatever the case.
$ for m in kimi-k2 KIMI-K2-1T glm4.5 gpt-2-124m DeepSeek-V3 moonlight; do muonctl plan $m --mesh fsdp=8 | head -1; done
kimi-k2-1t on 8 ranks: fsdp 8
kimi-k2-1t on 8 ranks: fsdp 8
glm-4.5-355b on 8 ranks: fsdp 8
gpt2-124m on 8 ranks: fsdp 8
deepseek-v3-671b on 8 ranks: fsdp 8
moonlight-16b on 8 ranks: fsdp 8

# JSON has what programs ask for, in one line; numbers agree with each other.
$ muonctl plan glm-4.5 --mesh fsdp=16,ep=8 --json >line && wc -l <line | tr -d ' '
1
$ for k in ranks matrices makespan_seconds lower_bound_seconds imbalance bytes_per_rank_max padding_bytes workspace_bytes_max plan_seconds hash padded round_robin mesh machine bounds; do grep -q "\"$k\":" line || echo "no $k"; done
$ grep -o '"mesh":{[^}]*}' line
"mesh":{"replicate":1,"fsdp":16,"ep":8,"tp":1}
$ grep -o '"machine":{[^}]*}' line
"machine":{"profile":"cpu","flops":1500000000000,"node_bandwidth":20000000000,"bandwidth":6000000000,"ranks_per_node":8,"latency":1e-5,"processor_bandwidth":0.0,"wire":"f32"}
$ grep -o '^{"model":[^,]*,"ranks":[0-9]*\|"matrices":43453\|"padding_bytes":0,"workspace' line
{"model":"glm-4.5-355b","ranks":128
"matrices":43453
"padding_bytes":0,"workspace
$ grep -c '"hash":"[0-9a-f]\{16\}"' line
1
$ value() { grep -o "\"$1\":[^,]*" line | head -1 | cut -d: -f2; }
$ awk -v t=$(value makespan_seconds) -v b=$(value lower_bound_seconds) -v i=$(value imbalance) 'BEGIN { print (b > 0 && t >= b && i >= 1) }'
1
$ muonctl plan glm-4.5 --mesh fsdp=16,ep=8 --json >again && for f in line again; do sed 's/"plan_seconds":[^,]*//' $f >$f.rest; done; cmp line.rest again.rest
$ grep -o '"[a-z_]*":' line | tr -d '":' | sort -u | while read k; do grep -q "\`$k\`" $DOCS/plan.md || echo "$k is not in plan.md"; done

# Every matrix has one owner: the ranks' matrices add up.
$ muonctl plan gpt2-124m --mesh fsdp=5 --json --ranks >line && sed 's/.*"rank_loads"//' line | grep -o '"matrices":[0-9]*' | awk -F: '{ n += $2 } END { print NR " ranks, " n " matrices" }'
5 ranks, 72 matrices
$ muonctl plan gpt2-124m --mesh fsdp=5 --ranks | sed -n '/^  rank/,$p' >table && head -1 table && wc -l <table | tr -d ' '
  rank  matrices       work   transfer  messages      sent  received     state workspace
6
# Of many ranks, the busiest, the middle and the idlest.
$ muonctl plan gpt2-124m --mesh fsdp=100 --ranks | sed -n '/^  rank/,$p' | grep -v '^  rank' | awk '{ print ($1 == "...") ? "..." : "rank" }' | uniq -c | sed 's/^ *//'
8 rank
1 ...
8 rank
1 ...
8 rank
# Parameters with their owners.
$ muonctl plan gpt2-124m --mesh fsdp=4 --params | sed -n '/^parameter/,$p' | sed -n '1p; /layers.11.proj/p' | sed 's/gram .*/gram/'
parameter       shape        rule  matrices     factor  algorithm  rank
layers.11.proj  [768, 3072]  muon  [768, 3072]  11.09   gram

# Machines.
$ muonctl plan gpt2-124m --profile gpu --json | grep -o '"machine":{[^}]*}'
"machine":{"profile":"gpu","flops":400000000000000,"node_bandwidth":300000000000,"bandwidth":40000000000,"ranks_per_node":8,"latency":1e-5,"processor_bandwidth":0.0,"wire":"bf16"}
$ muonctl plan gpt2-124m --profile gpu --flops 1e15 --bandwidth 50e9 --node-bandwidth 450e9 --ranks-per-node 4 --wire f32 --json | grep -o '"machine":{[^}]*}'
"machine":{"profile":"gpu","flops":1000000000000000,"node_bandwidth":450000000000,"bandwidth":50000000000,"ranks_per_node":4,"latency":1e-5,"processor_bandwidth":0.0,"wire":"f32"}
$ muonctl plan gpt2-124m --flops 1.5e12 | grep -o 'bound of .*'
bound of 500 ms (all work shared evenly)
$ muonctl plan gpt2-124m --flops 3e12 | grep -o 'bound of .*'
bound of 250 ms (all work shared evenly)

# Workspace: less with a budget, until that cannot be met.
$ for b in 1e9 1e8; do muonctl plan gpt2-124m --mesh fsdp=2 --budget $b --json; done | sed 's/.*"workspace_bytes_max":\([0-9]*\).*/\1/' | awk 'NR == 1 { ok = $1 <= 1e9 } NR == 2 { print (ok && $1 <= 1e8) ? "fits" : "is too large" }'
fits
$ muonctl plan gpt2-124m --mesh fsdp=2 --budget 1000
2> muonctl: plan: workspace_budget is 1000 bytes, but * (glob)
? 1

# A trillion parameters on 4,096 ranks, and a mesh in which nothing divides.
$ muonctl plan kimi-k2 --mesh fsdp=512,ep=8 --html plan.html | sed -n '1p; 4p'
kimi-k2-1t on 4,096 ranks: fsdp 512 x ep 8
matrices    69,668 in 668 tensors, 1.02 T parameters, 16.9 Pflop per step
$ muonctl plan glm-5 --mesh replicate=3,fsdp=7,ep=5,tp=3 --json | grep -o '"ranks":[0-9]*\|"padding_bytes":0,"work'
"ranks":315
"padding_bytes":0,"work

# The page stands alone: nothing is fetched, nothing is left to fill in, and no number is none.
$ grep -o 'https\?:[^"'"'"' ]*\|href=\|src=\|@[a-z.]*@' plan.html | sort -u
http://www.w3.org/1999/xhtml
http://www.w3.org/2000/svg
$ sed -n 's/.*id="data">//p' plan.html >data; grep -o '"groups":[0-9]*' data; grep -c 'nan\|inf[^l]' data; grep -o '"state_bytes":' data | wc -l | tr -d ' '
"groups":64
0
132
# For one rank and for two as well.
$ for n in 1 2; do muonctl plan gpt2-124m --mesh fsdp=$n --html small.html >log; grep -o '"role":"[a-z ]*"' small.html; done
"role":"the only one"
"role":"the busiest"
"role":"the idlest"

# Other models.
$ printf '{"mine-1b": [{"name": "q", "layers": 3, "rows": 40, "cols": 24}, {"name": "up", "expert_matrices": 7, "rows": 8, "cols": 24, "tp": "none"}]}' >mine.json
$ muonctl plan --list --models mine.json
model                parameters  tensors  matrices  largest
mine-1b                  4.22 K        4        10  40x24
$ muonctl plan mine --models mine.json --mesh fsdp=3,ep=2 --params | sed -n '1p; /^parameter/,/layers.0.up/p' | sed 's/gram .*/gram/'
mine-1b on 6 ranks: fsdp 3 x ep 2
parameter    shape     rule           matrices     factor  algorithm  rank
layers.0.q   [40, 24]  muon           [40, 24]     1.265   gram
layers.1.q   [40, 24]  muon           [40, 24]     1.265   gram
layers.2.q   [40, 24]  muon           [40, 24]     1.265   gram
layers.0.up  [56, 24]  muon (expert)  7 x [8, 24]  0.9798  gram

# The example in plan.md is what is printed today.
$ same() { sed 's/hash .*//'; }
$ example=$(sed -n 's/^\$ muonctl plan //p' $DOCS/plan.md | head -1)
$ sed -n '/^\$ muonctl plan/,/^```/p' $DOCS/plan.md | sed '1d; $d' | same >documented && muonctl plan $example | same | diff documented -

# Where ranks outnumber matrices, teams share them: the time is near that of all work shared evenly.
$ over() { muonctl plan $1 --mesh $2 --json | tr , '\n' | awk -F: -v most=$3 '/"makespan_seconds"/ && !t { t = $2 } /"work_seconds"/ && !b { b = $NF } END { print t <= most * b ? "ok" : t / b }'; }
$ over llama3-70b fsdp=2048 1.4
ok
$ over llama3-405b fsdp=2048 1.4
ok
$ over qwen3.5-397b-a17b fsdp=2048 1.05
ok
$ over glm-4.5 fsdp=2048 1.05
ok
$ over kimi-k2 fsdp=4096 1.10
ok
# So it is on faster machines, at most.
$ for m in moonlight:512 moonlight:2048 llama3-405b:512 llama3-405b:2048 qwen3-235b:2048 glm-5:2048 deepseek-v3:2048; do muonctl plan ${m%:*} --mesh fsdp=${m#*:} --profile gpu --json | tr , '\n' | awk -F: -v m=$m '/"makespan_seconds"/ && !t { t = $2 } /"lower_bound_seconds"/ { b = $2 } END { if (t > 1.4 * b) print m, t / b }'; done
# On faster machines other bounds are larger, and are named.
$ for m in llama3-8b:2048 glm-4.5:2048 kimi-k2:512 llama3-405b:2048; do muonctl plan ${m%:*} --mesh fsdp=${m#*:} --profile gpu | grep -o 'lower bound.*' | sed 's/ of .* (/: /; s/)//'; done
lower bound: the slowest matrix with its best team
lower bound: the bytes that must move
lower bound: all work shared evenly
lower bound: work and exchanges of teams that are fast enough
$ for m in llama3-8b:2048 glm-4.5:2048 kimi-k2:512 llama3-405b:2048; do muonctl plan ${m%:*} --mesh fsdp=${m#*:} --profile gpu --json | grep -o '"binding":"[a-z]*"'; done
"binding":"matrix"
"binding":"bytes"
"binding":"work"
"binding":"teams"
$ muonctl plan llama3-70b --mesh fsdp=2048 | grep ^teams
teams       * of the matrices are shared, by up to * ranks each (glob)
$ muonctl plan llama3-70b --mesh fsdp=2048 --team-max 1 | grep -c ^teams
0
? 1

# A bound on peers: of 16 nodes of 8, the other 7 and the other 15 at least. Relays do the rest.
$ muonctl plan llama3-8b --mesh fsdp=128 --peers-max 40 >bound && grep '^relays' bound
relays      * are passed on by a rank on their way (glob)
$ awk '/^messages/ { print $(NF - 1) <= 40 }' bound
1
$ muonctl plan llama3-8b --mesh fsdp=128 --peers-max 40 --json --ranks | grep -o '"peers":[0-9]*' | awk -F: '$2 > 40' | wc -l | tr -d ' '
0
$ muonctl plan llama3-8b --mesh fsdp=128 --peers-max 200 | grep -c '^relays'
0
? 1
$ muonctl plan llama3-8b --mesh fsdp=128 --team-max 1 --peers-max 21
2> muonctl: plan: peers_max is 21, but with machine.ranks_per_node 8 the smallest possible is 22
? 1

$ muonctl plan --help
Usage: muonctl plan MODEL... [--mesh AXES] [--profile NAME] [--flops X]
       [--node-bandwidth X] [--bandwidth X] [--ranks-per-node N]
       [--latency SECONDS] [--processor-bandwidth X] [--team-max N]
       [--peers-max N] [--wire TYPE] [--threads N] [--budget BYTES]
       [--in-flight N] [--config FILE] [--models FILE] [--list] [--ranks]
       [--params] [--html FILE] [--json]

Plans the step of a model on a mesh: which rank orthogonalizes which matrix,
the predicted time and its lower bound, bytes, balance and workspace, and what
two other schemes would cost. MODEL is the name of a known model (--list), or
its files: safetensors files, an index of them, or a folder with one. Only
headers are read. docs/plan.md explains the numbers.

Options:
  --mesh AXES           sizes of the axes replicate, fsdp, ep, tp: fsdp=64,ep=8
                        is 512 ranks [default: one rank]
  --profile NAME        machine: cpu (1.5 Tflop/s, 20 and 6 GB/s, f32 wire) or
                        gpu (400 Tflop/s, 300 and 40 GB/s, bf16 wire), 8 ranks
                        in a node [default: cpu, or what the config says]
  --flops X             flops per second of a rank [default: the profile's]
  --node-bandwidth X    bytes per second and direction of a rank, inside a node
                        [default: the profile's]
  --bandwidth X         the same between nodes [default: the profile's]
  --ranks-per-node N    ranks that share a node [default: the profile's]
  --latency SECONDS     of an exchange between ranks, besides its bytes
                        [default: the profile's]
  --processor-bandwidth X
                        bytes per second that a rank's processor sends and
                        receives when it does nothing else [default: messages
                        cost the processor nothing]
  --team-max N          ranks that may share one matrix; 1: every matrix has
                        one owner [default: as many as are of use]
  --peers-max N         ranks that a rank exchanges messages with; more go
                        through relays [default: no bound]
  --wire TYPE           elements in messages: f32 or bf16 [default: the
                        profile's]
  --threads N           threads of a rank; more threads need more workspace
                        [default: 8]
  --budget BYTES        largest workspace of a rank [default: no limit, sized
                        for speed]
  --in-flight N         number of waves whose messages and work overlap
                        [default: 3, or all where that is faster]
  --config FILE         groups, matrices and meshes for the tensors of files,
                        as for 'muonctl step'
  --models FILE         read the shapes of models from FILE instead of the
                        built-in ones
  --list                print the names of all models
  --ranks               print what each rank has to do; of more than 64 ranks,
                        the busiest, a middle and the idlest one
  --params              print every parameter with its matrices and owners
  --html FILE           write a web page: load of the ranks, waves in time, who
                        sends to whom, other schemes
  --json                print one line of JSON
  --help                this text

Example:
  muonctl plan qwen3.5-397b-a17b --mesh fsdp=64,ep=8
  muonctl plan kimi-k2 --mesh fsdp=256,ep=8 --profile gpu --html plan.html
  muonctl plan model-*.safetensors --mesh fsdp=16,tp=4 --json
