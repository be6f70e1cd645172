#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Curves */

enum { WIDTH = 61, HEIGHT = 16 };

static const char mark[TRIAL_NRULES] = {'M', 'A'};

/* The loss at a step, in a straight line between points. */
static double loss_at(const trial *t, double step)
{
    int i = 1;
    while (i < t->npoints - 1 && t->point_step[i] < step)
        i++;
    double from = t->point_step[i - 1], to = t->point_step[i];
    double part = (step - from) / (to - from);
    return t->point_loss[i - 1] + part * (t->point_loss[i] - t->point_loss[i - 1]);
}

/* The first loss is far above all others and would press the curves flat: the top of the picture is
 * where they are after a tenth of the steps. */
void report_curves(const contest *c)
{
    int steps = c->best[0]->steps;
    double top = 0, bottom = HUGE_VAL;
    for (int r = 0; r < TRIAL_NRULES; r++) {
        top = fmax(top, loss_at(c->best[r], 0.1 * steps));
        for (int i = 0; i < c->best[r]->npoints; i++)
            bottom = fmin(bottom, c->best[r]->point_loss[i]);
    }
    if (!(top > bottom)) top = bottom + 1;
    char picture[HEIGHT][WIDTH];
    memset(picture, ' ', sizeof picture);
    for (int r = 0; r < TRIAL_NRULES; r++) {
        for (int x = 0; x < WIDTH; x++) {
            double height =
                (loss_at(c->best[r], (double)steps * x / (WIDTH - 1)) - bottom) / (top - bottom);
            int y = (int)lround((1 - height) * (HEIGHT - 1));
            if (y < 0 || y >= HEIGHT) continue;
            char *at = &picture[y][x];
            *at = *at == ' ' ? mark[r] : '*';
        }
    }
    printf("\nValidation loss (M %s at lr %g, A %s at lr %g, * both)\n\n", trial_rule_name[0],
           c->best[0]->lr, trial_rule_name[1], c->best[1]->lr);
    for (int y = 0; y < HEIGHT; y++) {
        int length = WIDTH;
        while (length > 0 && picture[y][length - 1] == ' ')
            length--;
        if (y % 5 == 0)
            printf("  %5.2f", top - (top - bottom) * y / (HEIGHT - 1));
        else
            printf("       ");
        printf(" |%.*s\n", length, picture[y]);
    }
    printf("        +");
    for (int x = 0; x < WIDTH; x++)
        putchar('-');
    printf("\n         0%*s%d steps\n", WIDTH - 10, "", steps);
}

/* ---- Table */

/* The step, or the seconds, at which a curve first goes down to a loss; -1 if it never does. */
static double first_below(const trial *t, double loss, int in_seconds)
{
    for (int i = 0; i < t->npoints; i++) {
        if (t->point_loss[i] > loss) continue;
        double to = in_seconds ? t->point_seconds[i] : t->point_step[i];
        if (i == 0) return to;
        double from = in_seconds ? t->point_seconds[i - 1] : t->point_step[i - 1];
        double part = (t->point_loss[i - 1] - loss) / (t->point_loss[i - 1] - t->point_loss[i]);
        return from + part * (to - from);
    }
    return -1;
}

static double share(const trial *t)
{
    return t->opt_seconds / (t->opt_seconds + t->model_seconds);
}

void report_table(const contest *c)
{
    const trial *muon = c->best[TRIAL_MUON], *adamw = c->best[TRIAL_ADAMW];
    printf("\n%-40s %8s %8s\n", "", trial_rule_name[TRIAL_MUON], trial_rule_name[TRIAL_ADAMW]);
    printf("%-40s %8g %8g\n", "best learning rate", muon->lr, adamw->lr);
    printf("%-40s %8.3f %8.3f\n", "validation loss, nats per character", trial_loss(muon),
           trial_loss(adamw));
    printf("%-40s %8.1f %8.1f\n", "seconds of training", muon->model_seconds + muon->opt_seconds,
           adamw->model_seconds + adamw->opt_seconds);
    printf("%-40s %7.1f%% %7.1f%%\n", "  of these in the optimizer", 100 * share(muon),
           100 * share(adamw));
}

/* ---- Singular values */

enum { MATRIX = 3 }; /* hidden.2.weight, HIDDEN x HIDDEN */

static int find_state(muon_tensor *tensor, const trial *t, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", model_params[MATRIX].name, suffix);
    for (size_t i = 0; i < muon_state_count(t->opt); i++)
        if (muon_state_get(t->opt, i, tensor, sizeof *tensor) == MUON_OK &&
            strcmp(tensor->name, name) == 0)
            return 0;
    fprintf(stderr, "muon-demo: the optimizer has no state '%s'\n", name);
    return -1;
}

/* What Muon does with its momentum: the default Newton-Schulz steps. */
static int orthogonalize(float *out, const float *x, int rows, int cols)
{
    muon_ortho *ortho = NULL;
    muon_status status = muon_ortho_create(&ortho, 1, rows, cols, NULL, 1, NULL);
    if (status == MUON_OK) status = muon_ortho_run(ortho, out, x);
    muon_ortho_destroy(ortho);
    if (status == MUON_OK) return 0;
    fprintf(stderr, "muon-demo: %s\n", muon_last_error());
    return -1;
}

static int put_spectrum(spectrum *s, const char *what, const float *x)
{
    if (spectrum_of(s, x, model_params[MATRIX].rows, model_params[MATRIX].cols) != 0) {
        fprintf(stderr, "muon-demo: no memory for singular values\n");
        return -1;
    }
    printf("%-40s %8.3g %8.3g %8.2g\n", what, s->largest, s->median, s->smallest);
    return 0;
}

int report_spectra(contest *c)
{
    static float update[HIDDEN * HIDDEN];
    muon_tensor momentum, exp_avg, exp_avg_sq;
    if (find_state(&momentum, c->best[TRIAL_MUON], "momentum_buffer") != 0 ||
        find_state(&exp_avg, c->best[TRIAL_ADAMW], "exp_avg") != 0 ||
        find_state(&exp_avg_sq, c->best[TRIAL_ADAMW], "exp_avg_sq") != 0)
        return -1;
    const float *mean = exp_avg.data, *square = exp_avg_sq.data;
    for (int i = 0; i < HIDDEN * HIDDEN; i++)
        update[i] = mean[i] / (sqrtf(square[i]) + 1e-8f);
    printf("\nSingular values of %-21s %8s %8s %8s\n", model_params[MATRIX].name, "largest",
           "median", "smallest");
    spectrum s;
    if (put_spectrum(&s, "  AdamW: the mean gradient", mean) != 0) return -1;
    if (put_spectrum(&s, "  AdamW: the update made of it", update) != 0) return -1;
    if (put_spectrum(&c->momentum, "  Muon: the momentum", momentum.data) != 0) return -1;
    if (orthogonalize(update, momentum.data, HIDDEN, HIDDEN) != 0) return -1;
    return put_spectrum(&c->update, "  Muon: the update made of it", update);
}

/* ---- Conclusions */

void report_conclusions(const contest *c)
{
    const trial *muon = c->best[TRIAL_MUON], *adamw = c->best[TRIAL_ADAMW];
    int winner = trial_loss(muon) <= trial_loss(adamw) ? TRIAL_MUON : TRIAL_ADAMW;
    const trial *first = c->best[winner], *second = c->best[1 - winner];
    const char *first_name = trial_rule_name[winner], *second_name = trial_rule_name[1 - winner];
    double step = first_below(first, trial_loss(second), 0);
    double first_time = first_below(first, trial_loss(second), 1);
    double second_time = second->model_seconds + second->opt_seconds;

    printf("\n- After %d steps %s is ahead: %.3f against %.3f. It was where %s ended after %.0f "
           "steps,\n"
           "  that is %.0f%% of them.\n",
           first->steps, first_name, trial_loss(first), trial_loss(second), second_name, step,
           100 * step / first->steps);
    printf("- In time: %.1f s to get there, against %.1f s for %s.\n", first_time, second_time,
           second_name);
    double ratio = muon->opt_seconds / muon->model_seconds;
    printf("- Muon's own work took %.0f%% of its time at a batch of %d. It does not grow with the "
           "batch:\n"
           "  at 64 times as many characters per step it would be %.1f%%.\n",
           100 * share(muon), BATCH, 100 * ratio / (ratio + 64));
    printf("- The largest singular value of %s is %.0f times the median one in Muon's\n"
           "  momentum, and %.2f times in the update that Newton-Schulz makes of it.\n",
           model_params[MATRIX].name, c->momentum.largest / c->momentum.median,
           c->update.largest / c->update.median);
    for (int r = 0; r < TRIAL_NRULES; r++)
        if (c->at_edge[r])
            printf("- %s was best at the edge of the rates tried: it may do better beyond.\n",
                   trial_rule_name[r]);
}
