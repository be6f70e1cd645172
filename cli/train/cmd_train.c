/* muonctl train - a language model over bytes, trained by Muon. */
#include "cli/core/commands.h"
#include "cli/train/options.h"

#include <limits.h>

enum { MOST_STEPS = 100000000, MOST_BATCH = 1 << 20, MOST_SAMPLE = 1 << 20 };

static train_options o = {
    .settings = TRAIN_DEFAULTS,
    .sample = {.bytes = 200, .temperature = 0.8, .prompt = ""},
    .model = "small",
    .optimizer = "muon",
    .layers = TRAIN_NOT_GIVEN,
    .width = TRAIN_NOT_GIVEN,
    .context = TRAIN_NOT_GIVEN,
    .heads = TRAIN_NOT_GIVEN,
    .kv_heads = TRAIN_NOT_GIVEN,
    .hidden = TRAIN_NOT_GIVEN,
    .experts = TRAIN_NOT_GIVEN,
    .top_k = TRAIN_NOT_GIVEN,
    .expert_hidden = TRAIN_NOT_GIVEN,
};

#define TEXT(NAME, ARGUMENT, TARGET)                                                               \
    .name = (NAME), .argument = (ARGUMENT), .type = OPTION_TEXT, .target = &(TARGET)
#define FLAG(NAME, TARGET) .name = (NAME), .type = OPTION_FLAG, .target = &(TARGET)
#define WHOLE(NAME, TARGET, LEAST, MOST)                                                           \
    .name = (NAME), .argument = "N", .type = OPTION_INTEGER, .target = &(TARGET),                  \
    .least = (LEAST), .most = (MOST)
#define NUMBER(NAME, TARGET, LEAST, MOST)                                                          \
    .name = (NAME), .argument = "X", .type = OPTION_NUMBER, .target = &(TARGET), .least = (LEAST), \
    .most = (MOST)
#define SHAPE(NAME, TARGET) WHOLE(NAME, TARGET, 0, INT_MAX), .standard = "the model's"

static const option options[] = {
    {TEXT("model", "NAME", o.model), .help = "a named model; --list prints all",
     .standard = "small"},
    {OPTION_FILE("model-file", o.model_file,
                 "JSON that changes values of the named model: docs/training.md")},
    {SHAPE("layers", o.layers), .help = "layers of the model"},
    {SHAPE("width", o.width), .help = "its width"},
    {SHAPE("context", o.context), .help = "tokens (bytes) per sequence"},
    {SHAPE("heads", o.heads), .help = "attention heads"},
    {SHAPE("kv-heads", o.kv_heads), .help = "heads of keys and values"},
    {SHAPE("hidden", o.hidden), .help = "width of the dense feed-forward part"},
    {SHAPE("experts", o.experts), .help = "experts per layer; 0: dense"},
    {SHAPE("top-k", o.top_k), .help = "experts per token"},
    {SHAPE("expert-hidden", o.expert_hidden), .help = "width of an expert"},
    {FLAG("list", o.list), .help = "print the named models and the variants"},

    {OPTION_FILE("data", o.settings.data, "any file; its last tenth is used for validation"),
     .standard = "libmuon's own sources and documentation, built in"},
    {WHOLE("steps", o.settings.schedule.steps, 1, MOST_STEPS), .help = "steps", .standard = "200"},
    {WHOLE("batch", o.settings.batch, 1, MOST_BATCH), .help = "sequences per step, over all ranks",
     .standard = "16"},
    {WHOLE("micro-batch", o.settings.micro_batch, 0, MOST_BATCH),
     .help = "sequences that a rank processes at a time", .standard = "about 4096 tokens"},
    {WHOLE("seed", o.settings.seed, 0, INT_MAX),
     .help = "seed of the initial weights, the data and the sample", .standard = "1"},

    {TEXT("optimizer", "NAME", o.optimizer),
     .help = "muon (with AdamW for embedding, head and norms) or adamw", .standard = "muon"},
    {TEXT("variant", "NAME", o.variant),
     .help = "of Muon: normuon, normuon-long, adamuon, muoneq, muon-plus, polargrad, cautious, "
             "nanochat, int8, or lion (Lion in the place of AdamW, at 0.4 times its "
             "learning rate); --list explains them"},
    {TEXT("compare", "NAME", o.compare),
     .help = "then train the same model with this optimizer (muon, adamw or a variant), and "
             "report both"},
    {NUMBER("lr", o.settings.optimizer.lr, 0, 1e6), .help = "learning rate of Muon's matrices",
     .standard = "0.01"},
    {NUMBER("adamw-lr", o.settings.optimizer.adamw_lr, 0, 1e6),
     .help = "learning rate of everything that AdamW trains", .standard = "0.004"},
    {NUMBER("warmup", o.settings.schedule.warmup, 0, 1),
     .help = "fraction of the run in which the learning rate rises", .standard = "0.05"},
    {NUMBER("decay", o.settings.schedule.decay, 0, 1),
     .help = "fraction of the run, at its end, in which it falls", .standard = "0.5"},
    {NUMBER("final-lr", o.settings.schedule.final, 0, 1),
     .help = "fraction of the learning rate that it falls to", .standard = "0"},
    {NUMBER("weight-decay", o.settings.optimizer.weight_decay, 0, 1e6),
     .help = "weight decay of everything but norms", .standard = "0.1"},
    {NUMBER("momentum", o.settings.optimizer.momentum, 0, 1), .help = "Muon's", .standard = "0.95"},
    {NUMBER("clip", o.settings.optimizer.clip_norm, 0, 1e30),
     .help = "norm that gradients are clipped to; 0: no clipping", .standard = "1"},
    {NUMBER("qk-clip", o.settings.optimizer.qk_clip, 0, 1e30),
     .help = "apply QK-clip to attention logits above this; 0: only record them", .standard = "0"},

    {TEXT("mesh", "AXES", o.mesh), .help = "how ranks share tensors, as in fsdp=2,ep=2,replicate=1",
     .standard = "fsdp over all ranks"},
    {FLAG("deterministic", o.settings.deterministic),
     .help = "give the same bits on 1, 2, 4 and 8 ranks"},
    {.name = "timeout",
     .argument = "S",
     .type = OPTION_NUMBER,
     .target = &o.settings.timeout,
     .least = 1e-3,
     .most = 1e9,
     .help = "seconds to wait for another rank before the run fails",
     .standard = "600"},
    {WHOLE("validate-every", o.settings.validate_every, 1, MOST_STEPS),
     .help = "steps between validations", .standard = "25"},
    {WHOLE("validate-with", o.settings.validations, 1, MOST_BATCH),
     .help = "largest number of sequences in a validation", .standard = "64"},

    {TEXT("save", "DIR", o.settings.saving.dir),
     .help = "directory for checkpoints; one is saved when the run ends or is interrupted"},
    {WHOLE("save-every", o.settings.saving.every, 1, MOST_STEPS),
     .help = "steps between checkpoints", .standard = "only at the end"},
    {WHOLE("keep", o.settings.saving.keep, 1, MOST_STEPS),
     .help = "keep the newest N checkpoints and delete older ones", .standard = "all"},
    {FLAG("save-async", o.settings.saving.async),
     .help = "write checkpoints in the background, from a copy of weights and state"},
    {FLAG("resume", o.settings.saving.resume),
     .help = "continue from the newest complete checkpoint in --save, if there is one"},
    {TEXT("from", "PATH", o.settings.saving.from),
     .help = "start from this checkpoint, or from the newest of this directory"},
    {TEXT("offload", "DIR", o.settings.optimizer.offload_dir),
     .help = "keep the optimizer's state in a file in DIR, which disappears with the run"},
    {TEXT("ram-budget", "SIZE", o.ram_budget),
     .help = "with --offload: largest part of the state in a rank's memory, such as 500M or 2G"},

    {WHOLE("sample", o.sample.bytes, 0, MOST_SAMPLE),
     .help = "length in bytes of the sample text at the end", .standard = "200"},
    {NUMBER("temperature", o.sample.temperature, 0, 1e6),
     .help = "temperature of the sample; 0: always the likeliest byte", .standard = "0.8"},
    {TEXT("prompt", "TEXT", o.sample.prompt), .help = "text that the sample continues"},
    {TEXT("out", "DIR", o.out_dir),
     .help = "directory for params.safetensors, metrics.jsonl, report.html and trace.json; created "
             "if needed"},
    {OPTION_FILE("metrics", o.metrics, "one line of JSON per step"),
     .standard = "DIR/metrics.jsonl, with --out"},
    {OPTION_FILE("report", o.report, "a web page with charts of the run"),
     .standard = "DIR/report.html, with --out"},
    {OPTION_FILE("trace", o.trace, "what each rank did and when, for Perfetto; of the first run"),
     .standard = "DIR/trace.json, with --out"},
    {FLAG("quiet", o.quiet), .help = "no progress"},
    COMPUTE_OPTIONS(o.how),
};

static int run(int noperands, char **operands)
{
    (void)noperands;
    (void)operands;
    return o.list ? train_options_list() : train_work(&o);
}

const command cmd_train = {
    .name = "train",
    .summary = "train a language model on a text, on one rank or many",
    .about =
        "Trains a decoder-only model that predicts the next byte of a text. Muon trains the "
        "matrices, AdamW the rest. Under mpirun or srun the ranks share each batch, the "
        "optimizer's state and "
        "its work; the losses are those of one rank up to rounding, and with --deterministic to "
        "the bit. Progress goes to standard error, the result to standard output. Ctrl-C ends the "
        "run after the current step, with everything written and exit code 130; a second one ends "
        "it at once. A NaN or infinity skips the step; ten skipped steps in a row end the run. "
        "With --save and --resume, the same command line continues where the run was stopped, with "
        "the same bits as if it had never been.",
    .options = options,
    .noptions = sizeof options / sizeof options[0],
    .example = "  muonctl train --compare adamw --out run\n"
               "  muonctl train --variant normuon --compare muon\n"
               "  muonctl train --data book.txt --model medium --steps 1000 --prompt 'Once '\n"
               "  mpirun -n 4 muonctl train --model moe --mesh fsdp=2,ep=2\n"
               "  muonctl train --save checkpoints --save-every 50 --keep 3 --resume",
    .run = run,
};
