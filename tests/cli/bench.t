# A line of JSON for each problem; what was timed has been verified.
$ muonctl bench ns:3x5x4 ns:97x33 ns:40x40@coefficients=deepseek_v4,algorithm=gram --repeat 1 --min-time 0
{"problem":"ns:3x5x4","seconds":*,"rate":*,"peak":*,"ratio":*,"threads":*,"unit":"GFLOP/s","algorithm":"symmetric","best_of":1,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
{"problem":"ns:97x33","seconds":*,"rate":*,"peak":*,"ratio":*,"threads":*,"unit":"GFLOP/s","algorithm":"gram","best_of":1,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
{"problem":"ns:40x40@coefficients=deepseek_v4,algorithm=gram","seconds":*,"algorithm":"gram","best_of":1,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
$ muonctl bench ns:3x5x4@normalization=aol ns:97x33@normalization=schatten4,norm_scale=1.1 ns:33x97@normalization=aol,coefficients=polar_express,algorithm=gram ns:40x40@coefficients=cubic5 --repeat 1 --min-time 0
{"problem":"ns:3x5x4@normalization=aol",*"verified":true,* (glob)
{"problem":"ns:97x33@normalization=schatten4,norm_scale=1.1",*"verified":true,* (glob)
{"problem":"ns:33x97@normalization=aol,coefficients=polar_express,algorithm=gram",*"verified":true,* (glob)
{"problem":"ns:40x40@coefficients=cubic5",*"verified":true,* (glob)
$ muonctl bench adamw:1M momentum:1M update:1M norm:1M --repeat 3 --min-time 0 --threads 2
{"problem":"adamw:1M",*"threads":2,"unit":"GB/s","algorithm":null,"best_of":3,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
{"problem":"momentum:1M",*"threads":2,"unit":"GB/s","algorithm":null,"best_of":3,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
{"problem":"update:1M",*"threads":2,"unit":"GB/s","algorithm":null,"best_of":3,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
{"problem":"norm:1M",*"threads":2,"unit":"GB/s","algorithm":null,"best_of":3,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
$ muonctl bench step:gpt2-tiny --repeat 2 --min-time 0 --threads 1
{"problem":"step:gpt2-tiny",*"threads":1,"unit":"GFLOP/s","algorithm":null,"best_of":2,"verified":true,"cpu":*,"backend":*,"version":*,"kernels":*} (glob)
$ muonctl bench --list | grep -o '^step:MODEL.*\|^variants:MODEL' | tr -s ' '
step:MODEL a whole step; models: gpt2-124m, gpt2-350m, gpt2-tiny, qwen3-30b-layer
variants:MODEL

# Every variant against plain Muon; each has been verified.
$ muonctl bench variants:gpt2-tiny --repeat 2 --min-time 0 --threads 2 | sed 's/:[0-9][0-9.e-]*,/:N,/g'
{"problem":"variants:gpt2-tiny","variant":"normuon","threads":N,"seconds":N,"seconds_muon":N,"ratio":N,"cpu_ratio":N,"best_of":N,"verified":true}
{"problem":"variants:gpt2-tiny","variant":"normuon-long",* (glob)
{"problem":"variants:gpt2-tiny","variant":"adamuon",* (glob)
{"problem":"variants:gpt2-tiny","variant":"muoneq",* (glob)
{"problem":"variants:gpt2-tiny","variant":"muon-plus",* (glob)
{"problem":"variants:gpt2-tiny","variant":"polargrad",* (glob)
{"problem":"variants:gpt2-tiny","variant":"cautious",* (glob)
{"problem":"variants:gpt2-tiny","variant":"nanochat",* (glob)
{"problem":"variants:gpt2-tiny","variant":"int8",* (glob)
{"problem":"variants:gpt2-tiny","variant":"lion",* (glob)
$ muonctl bench variants:gpt2-tiny --repeat 1 --min-time 0 --table | sed 's/[0-9][0-9.]*/N/g' | head -3 | tr -s ' '
variants:gptN-tiny: at least N turns each; at most N times as long is wanted
 variant seconds plain Muon ratio CPU ratio
 normuon N N N N * (glob)

# A step with its state in a file has the bits of a step in memory, within its budget.
$ muonctl bench offload:gpt2-tiny --repeat 2 --min-time 0 --threads 1 --ram-budget 400K --dir .
{"problem":"offload:gpt2-tiny","threads":1,"seconds":*,"seconds_memory":*,"ratio":*,"direct_seconds":*,"direct_ratio":*,"state_bytes":735232,"ram_budget":409600,"resident_most":*,"rss_memory":*,"rss_offloaded":*,"bytes_read":*,"bytes_written":*,"best_of":2,"verified":true} (glob)
$ muonctl bench offload:gpt2-tiny --repeat 1 --min-time 0 --table --ram-budget 0.5M --dir .
offload:gpt2-tiny: 735 kB of state, 524 kB of it in memory; * times as long*; the same bits (glob)
  a step reads * and writes *; the process had * MB and then * MB (glob)
$ muonctl bench offload:gpt2-tiny --ram-budget 1K --dir .
2> muonctl: bench: offloading needs at least * bytes of memory for state, the budget is 1024 (glob)
? 1
$ muonctl bench offload:gpt2-tiny --dir nowhere --ram-budget 1M
2> muonctl: bench: nowhere: no offload file of 2097152 bytes can be created there: * (glob)
? 1
$ muonctl bench offload:gpt2-tini --ram-budget 1M
2> muonctl: bench: unknown model 'gpt2-tini'; did you mean 'gpt2-tiny'?
2> try: muonctl bench --help
? 2
$ muonctl bench offload:gpt2-tiny --ram-budget much
2> muonctl: bench: --ram-budget: 'much' is not a size like 300000, 500M or 1.5G
2> try: muonctl bench --help
? 2

# The reference backend is measured like any other.
$ muonctl bench ns:40x60 --repeat 1 --min-time 0 --backend reference --table
cpu      * (glob)
backend  reference
problem                          seconds      rate      peak  ratio
ns:40x60 * GFLOP/s (glob)

# A mistake in the last problem is found before the first one runs.
$ muonctl bench ns:2000x2000 adamw:10
2> muonctl: bench: '10' is not a multiple of 1M up to 17179M
2> try: muonctl bench --help
? 2
