/* main.c - muon-demo: Muon and AdamW train the same small network, side by side.
 *
 * Twice three trials, which differ in nothing but the rule and the learning rate of the hidden
 * matrices. They advance together, as many at a time as there are threads; no number but a time
 * depends on that. */
#include "muon/plan.h"
#include "report.h"

#include <muon/safetensors.h>

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double rates[] = {0.01, 0.03, 0.09};

enum {
    NRATES = sizeof rates / sizeof *rates,
    NTRIALS = TRIAL_NRULES * NRATES,
    POINTS = 20, /* of a curve, besides the start */
    DEFAULT_STEPS = 160,
    MAX_THREADS = NTRIALS
};

static const uint64_t VALIDATION_SEED = 42;
static const char WEIGHTS[] = "demo-weights.safetensors", GRADS[] = "demo-grads.safetensors";

/* ---- Options */

typedef struct options {
    int steps, threads;
    const char *data, *save;
    char place[PATH_MAX]; /* the directory of this program, as it was called */
} options;

static void print_help(void)
{
    printf(
        "Usage: muon-demo [--steps N] [--threads N] [--data FILE] [--save DIR]\n"
        "\n"
        "Trains a small network to predict the next character, with Muon and with AdamW from the\n"
        "same start on the same data, and compares them. Exit code 1 if training diverged.\n"
        "\n"
        "  --steps N    training steps [default: %d]\n"
        "  --threads N  runs at the same time; changes nothing but the time [default: all cores]\n"
        "  --data FILE  text to learn [default: the sources of this project]\n"
        "  --save DIR   where to put the weights and gradients of the end, as safetensors files\n"
        "               [default: where this program is]\n"
        "  --help       this text\n",
        DEFAULT_STEPS);
}

static int wrong_use(const char *message, const char *detail)
{
    fprintf(stderr, "muon-demo: %s%s (see --help)\n", message, detail);
    return 2;
}

static int parse_number(int *out, const char *word, int most)
{
    char *end;
    long value = strtol(word, &end, 10);
    if (end == word || *end || value < 1 || value > most) return -1;
    *out = (int)value;
    return 0;
}

/* Returns 0 to go on, -1 when all is done, or the exit code for wrong use. */
static int parse(options *o, int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *o = (options){.steps = DEFAULT_STEPS,
                   .threads = cores < 1             ? 1
                              : cores > MAX_THREADS ? MAX_THREADS
                                                    : (int)cores};
    const char *slash = strrchr(argv[0], '/');
    if (slash)
        snprintf(o->place, sizeof o->place, "%.*s", (int)(slash - argv[0]), argv[0]);
    else
        strcpy(o->place, ".");
    o->save = o->place;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--help") == 0) {
            print_help();
            return -1;
        }
        int steps = strcmp(name, "--steps") == 0, threads = strcmp(name, "--threads") == 0;
        int data = strcmp(name, "--data") == 0, save = strcmp(name, "--save") == 0;
        if (!steps && !threads && !data && !save) return wrong_use("no option is called ", name);
        if (++i == argc) return wrong_use("a value is missing after ", name);
        if (steps && parse_number(&o->steps, argv[i], 1000000) != 0)
            return wrong_use("--steps must be 1..1000000, not ", argv[i]);
        if (threads && parse_number(&o->threads, argv[i], MAX_THREADS) != 0)
            return wrong_use("--threads must be 1..6, not ", argv[i]);
        if (data) o->data = argv[i];
        if (save) o->save = argv[i];
    }
    return 0;
}

/* ---- Trials, several at a time */

typedef struct crew {
    trial *trials;
    int to_step;
    atomic_int next;
} crew;

static void *work(void *arg)
{
    crew *c = arg;
    for (int i; (i = atomic_fetch_add(&c->next, 1)) < NTRIALS;)
        trial_advance(&c->trials[i], c->to_step);
    return NULL;
}

static void advance_all(trial *trials, int to_step, int threads)
{
    crew c = {.trials = trials, .to_step = to_step};
    pthread_t helper[MAX_THREADS];
    int helpers = 0;
    while (helpers < threads - 1 && pthread_create(&helper[helpers], NULL, work, &c) == 0)
        helpers++;
    work(&c);
    while (helpers > 0)
        pthread_join(helper[--helpers], NULL);
}

static int create_all(trial *trials, const text *t, const unsigned char *validation, int steps)
{
    for (int i = 0; i < NTRIALS; i++) {
        trials[i].rule = i < NRATES ? TRIAL_MUON : TRIAL_ADAMW;
        trials[i].lr = rates[i % NRATES];
        trials[i].text = t;
        trials[i].validation = validation;
        trials[i].steps = steps;
        if (trial_create(&trials[i]) == 0) continue;
        fprintf(stderr, "muon-demo: %s\n", trials[i].error);
        return -1;
    }
    return 0;
}

static void print_progress(const trial *trials, int step)
{
    if (step == 0) {
        printf("\nValidation loss, in nats per character:\n\n        %-27s   %s\n    lr",
               trial_rule_name[0], trial_rule_name[1]);
        for (int i = 0; i < NTRIALS; i++)
            printf("%s%9g", i == NRATES ? "   " : "", trials[i].lr);
        printf("\n  step\n");
    }
    printf("%6d", step);
    for (int i = 0; i < NTRIALS; i++)
        printf("%s%9.3f", i == NRATES ? "   " : "", trial_loss(&trials[i]));
    printf("\n");
    fflush(stdout);
}

static void train(trial *trials, const options *o)
{
    int points = o->steps < POINTS ? o->steps : POINTS;
    for (int i = 0; i <= points; i++) {
        int step = (int)((int64_t)o->steps * i / points);
        advance_all(trials, step, o->threads);
        print_progress(trials, step);
    }
}

static contest judge(const trial *trials)
{
    contest c = {.at_edge = {0}};
    for (int i = 0; i < NTRIALS; i++) {
        const trial *t = &trials[i], **best = &c.best[t->rule];
        if (*best && !trial_diverged(*best) && !(trial_loss(t) < trial_loss(*best))) continue;
        *best = t;
        c.at_edge[t->rule] = i % NRATES == 0 || i % NRATES == NRATES - 1;
    }
    return c;
}

/* ---- Around them */

static void write_out(void *user, const char *chars, size_t length)
{
    fwrite(chars, 1, length, user);
}

static void print_setting(const trial *t, const text *data, const options *o)
{
    int weights = 0;
    for (int i = 0; i < NPARAMS; i++)
        weights += model_param_size(i);
    printf("libmuon %s: Muon and AdamW train the same network from the same start.\n\n",
           muon_version());
    printf("  text     %zu characters, ", data->length);
    if (o->data)
        printf("%s", o->data);
    else if (data->files)
        printf("%d files of this project's own sources", data->files);
    else
        printf("sums in words, made up");
    printf("; a tenth is for validation\n");
    printf("  network  %d characters -> embedding -> 3 hidden layers of %d -> the next character,\n"
           "           %d weights\n",
           CONTEXT, HIDDEN, weights);
    printf(
        "  runs     hidden matrices by Muon (momentum 0.9) or by AdamW (betas 0.9, 0.95), each at\n"
        "           %d learning rates; all the rest by AdamW in every run; %d steps of %d "
        "characters\n\n",
        NRATES, o->steps, BATCH);
    printf("What libmuon makes of the network (muon_plan_print):\n\n");
    muon_plan_print(muon_opt_get_plan(t->opt), write_out, stdout);
}

static int save(const options *o, const char *name, float *const *values)
{
    muon_st_tensor tensors[NPARAMS];
    for (int i = 0; i < NPARAMS; i++) {
        const model_param *p = &model_params[i];
        tensors[i] = (muon_st_tensor){.name = p->name, .dtype = "F32", .ndim = p->cols ? 2 : 1};
        tensors[i].shape[0] = p->rows;
        tensors[i].shape[1] = p->cols;
        tensors[i].bytes = (size_t)model_param_size(i) * sizeof(float);
        tensors[i].data = values[i];
    }
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", o->save, name);
    if (muon_st_write(path, tensors, NPARAMS, NULL, 0) == MUON_OK) return 0;
    fprintf(stderr, "muon-demo: %s\n", muon_last_error());
    return -1;
}

static void print_next(const options *o)
{
    printf("\nThe weights Muon trained are in %s/%s, their last\n"
           "gradients beside them. Next you could try:\n\n",
           o->save, WEIGHTS);
    printf("  %s/muonctl --help\n", o->place);
    printf("  %s/muonctl bench ns:1024x4096 --table\n", o->place);
    printf("  %s/muonctl explain --config examples/configs/minimal.json \\\n      --params %s/%s\n",
           o->place, o->save, WEIGHTS);
    printf("  %s/muonctl step --config examples/configs/minimal.json \\\n      --params %s/%s \\\n"
           "      --grads %s/%s --out %s/step\n",
           o->place, o->save, WEIGHTS, o->save, GRADS, o->save);
}

static int report(contest *c, const options *o)
{
    for (int r = 0; r < TRIAL_NRULES; r++) {
        const trial *best = c->best[r];
        if (!trial_diverged(best)) continue;
        fprintf(stderr, "muon-demo: %s diverged at every learning rate%s%s\n", trial_rule_name[r],
                best->failed ? ": " : "", best->error);
        return -1;
    }
    report_curves(c);
    report_table(c);
    if (report_spectra(c) != 0) return -1;
    report_conclusions(c);
    const model *trained = c->best[TRIAL_MUON]->model;
    if (save(o, WEIGHTS, trained->weight) != 0 || save(o, GRADS, trained->grad) != 0) return -1;
    print_next(o);
    return 0;
}

int main(int argc, char **argv)
{
    options o;
    int parsed = parse(&o, argc, argv);
    if (parsed != 0) return parsed < 0 ? 0 : parsed;
    text data;
    if (text_load(&data, o.data) != 0) return 1;
    static unsigned char validation[VALIDATION * WINDOW];
    text_draw(&data, validation, VALIDATION, VALIDATION_SEED, 1);

    static trial trials[NTRIALS];
    int status = create_all(trials, &data, validation, o.steps);
    if (status == 0) {
        print_setting(&trials[0], &data, &o);
        train(trials, &o);
        contest c = judge(trials);
        status = report(&c, &o);
    }
    for (int i = 0; i < NTRIALS; i++)
        trial_destroy(&trials[i]);
    text_free(&data);
    return status == 0 ? 0 : 1;
}
