/* What `muonctl plan` has to know of a machine, measured on all ranks at once: they may share processors,
 * memory and cables, as they do in a step. Means over a second or so, not the best. */
#include "cli/bench/bench.h"
#include "cli/core/files.h"
#include "cli/core/launch.h"

#include <sched.h>
#include <stdlib.h>

static const double long_enough = 1; /* seconds */
static const int64_t message_bytes = 16 << 20;
enum { MOST_SHAPES = 16, PINGS = 50, CHANNEL = 0, UNIT = 256, TURNS = 3 };

/* All ranks wait for each other. */
static void meet(void)
{
    int64_t nothing = 0;
    launch_sum(&nothing, 1);
}

static double mean(double mine)
{
    int64_t sum = (int64_t)mine;
    launch_sum(&sum, 1);
    return (double)sum / launch_size();
}

/* ---- flops ------------------------------------------------------------------------------------- */

typedef struct shape {
    int64_t rows, cols, count;
} shape;

/* The shapes of the plan's matrices, the first of them if there are many. */
static int find_shapes(shape *shapes, int *nshapes, const muon_plan *plan)
{
    *nshapes = 0;
    for (size_t i = 0; i < muon_plan_count_matrices(plan); i++) {
        muon_matrix m;
        if (muon_plan_get_matrix(plan, i, &m, sizeof m) != MUON_OK) return cli_fail_library();
        int k = 0;
        while (k < *nshapes && (shapes[k].rows != m.rows || shapes[k].cols != m.cols))
            k++;
        if (k == MOST_SHAPES) continue;
        if (k == *nshapes) shapes[(*nshapes)++] = (shape){m.rows, m.cols, 0};
        shapes[k].count++;
    }
    return CLI_DONE;
}

/* Seconds and flops of one orthogonalization, while all ranks do the same. */
static int time_shape(const shape *s, const compute *how, double share, double *seconds,
                      double *flops)
{
    muon_ortho *ortho = NULL;
    if (muon_ortho_create(&ortho, 1, s->rows, s->cols, NULL, how->threads, how->backend) != MUON_OK)
        return cli_fail_library();
    size_t bytes = (size_t)(s->rows * s->cols) * sizeof(float);
    float *in = tensors_alloc(bytes), *out = tensors_alloc(bytes);
    bench_matrix_fill(in, s->rows, s->cols, 1);
    muon_status status = muon_ortho_run(ortho, out, in);
    meet();
    int runs = 0;
    double start = cli_now(), elapsed = 0;
    for (; status == MUON_OK && elapsed < share * long_enough; runs++) {
        status = muon_ortho_run(ortho, out, in);
        elapsed = cli_now() - start;
    }
    *seconds = elapsed / runs;
    *flops = muon_ortho_get_flops(ortho);
    muon_ortho_destroy(ortho);
    free(in);
    free(out);
    return status == MUON_OK ? CLI_DONE : cli_fail_library();
}

int bench_rates_compute(double *flops, const muon_plan *plan, const compute *how)
{
    shape shapes[MOST_SHAPES];
    int nshapes;
    double seconds = 0, all = 0;
    DO(launch_agree(find_shapes(shapes, &nshapes, plan)));
    for (int i = 0; i < nshapes; i++) {
        double each = 0, work = 0;
        DO(launch_agree(time_shape(&shapes[i], how, 1.0 / nshapes, &each, &work)));
        seconds += (double)shapes[i].count * each;
        all += (double)shapes[i].count * work;
    }
    *flops = mean(all / seconds);
    return CLI_DONE;
}

/* ---- messages ---------------------------------------------------------------------------------- */

typedef struct line { /* to one rank and from another, at the same time */
    const muon_comm *comm;
    muon_batch *out, *in;
    char *sent, *received;
} line;

static int open_line(line *l, int to, int from, int64_t bytes)
{
    *l = (line){.comm = launch_comm(),
                .sent = tensors_alloc((size_t)bytes),
                .received = tensors_alloc((size_t)bytes)};
    const muon_comm_ops *ops = l->comm->ops;
    const muon_message send = {l->sent, bytes, to}, receive = {l->received, bytes, from};
    for (int64_t i = 0; i < bytes; i++)
        l->sent[i] = (char)i;
    if (ops->open(l->comm->self, &l->in, MUON_RECEIVE, CHANNEL, &receive, 1) != MUON_OK ||
        ops->open(l->comm->self, &l->out, MUON_SEND, CHANNEL, &send, 1) != MUON_OK)
        return cli_fail_library();
    return CLI_DONE;
}

static void close_line(line *l)
{
    if (l->in) l->comm->ops->close(l->comm->self, l->in);
    if (l->out) l->comm->ops->close(l->comm->self, l->out);
    free(l->sent);
    free(l->received);
}

static int start(const line *l, muon_batch *batch)
{
    return l->comm->ops->start(l->comm->self, batch) == MUON_OK ? CLI_DONE : cli_fail_library();
}

static int finish(const line *l, muon_batch *batch)
{
    for (int done = 0; !done; sched_yield())
        if (l->comm->ops->test(l->comm->self, batch, &done) != MUON_OK) return cli_fail_library();
    return CLI_DONE;
}

static int exchange(const line *l, int64_t times, double *seconds)
{
    meet();
    double began = cli_now();
    for (int64_t i = 0; i < times; i++) {
        DO(start(l, l->in));
        DO(start(l, l->out));
        DO(finish(l, l->in));
        DO(finish(l, l->out));
    }
    *seconds = cli_now() - began;
    return CLI_DONE;
}

/* Bytes per second and direction of a rank, while every rank sends to the one `distance` further on. */
static int measure_bandwidth(double *rate, int distance)
{
    int size = launch_size(), rank = launch_rank();
    line l;
    double seconds = 0;
    int code =
        open_line(&l, (rank + distance) % size, (rank - distance + size) % size, message_bytes);
    if (code == CLI_DONE) code = exchange(&l, 1, &seconds);
    if (code == CLI_DONE) code = exchange(&l, 1, &seconds);
    int64_t times = seconds > 0 ? 1 + (int64_t)(long_enough / seconds) : 1;
    launch_max(&times, 1);
    if (code == CLI_DONE) code = exchange(&l, times, &seconds);
    close_line(&l);
    *rate = mean((double)(message_bytes * times) / seconds);
    return launch_agree(code);
}

/* Seconds that a message of a byte takes, one way, between rank 0 and the one `distance` further on. */
static int measure_latency(double *seconds, int distance)
{
    int rank = launch_rank(), code = CLI_DONE;
    double began = cli_now();
    if (rank == 0 || rank == distance) {
        line l;
        code = open_line(&l, distance - rank, distance - rank, 1);
        for (int i = 0; i < PINGS && code == CLI_DONE; i++) {
            if (i == 1) began = cli_now();
            code = start(&l, l.in);
            for (int turn = 0; turn < 2 && code == CLI_DONE; turn++) {
                if (turn == (rank == 0))
                    code = finish(&l, l.in);
                else if ((code = start(&l, l.out)) == CLI_DONE)
                    code = finish(&l, l.out);
            }
        }
        close_line(&l);
    }
    *seconds = (cli_now() - began) / (2 * (PINGS - 1));
    return launch_agree(code);
}

/* ---- what messages cost the processor ----------------------------------------------------------- */

/* Small matrices are orthogonalized while messages go both ways and are looked at in between, as in a step. */
typedef struct beside {
    line l;
    muon_ortho *unit;
    float *in, *out;
    double alone, with; /* seconds of all units without, and with messages */
    int64_t units[2];   /* so many */
} beside;

static int run_unit(beside *b)
{
    return muon_ortho_run(b->unit, b->out, b->in) == MUON_OK ? CLI_DONE : cli_fail_library();
}

static int run_alone(beside *b, double seconds)
{
    meet();
    double began = cli_now(), elapsed = 0;
    while (elapsed < seconds) {
        DO(run_unit(b));
        elapsed = cli_now() - began;
        b->units[0]++;
    }
    b->alone += elapsed;
    return CLI_DONE;
}

static int run_with(beside *b, int64_t times)
{
    const line *l = &b->l;
    muon_batch *const batches[] = {l->in, l->out};
    int64_t left[] = {times, times};
    meet();
    double began = cli_now();
    for (int i = 0; i < 2; i++)
        DO(start(l, batches[i]));
    for (; left[0] + left[1] > 0; b->units[1]++) {
        DO(run_unit(b));
        for (int i = 0; i < 2; i++) {
            int done = 0;
            if (left[i] == 0) continue;
            if (l->comm->ops->test(l->comm->self, batches[i], &done) != MUON_OK)
                return cli_fail_library();
            if (done && --left[i] > 0) DO(start(l, batches[i]));
        }
    }
    b->with += cli_now() - began;
    return CLI_DONE;
}

static int open_beside(beside *b, int distance, const compute *how)
{
    int size = launch_size(), rank = launch_rank();
    DO(open_line(&b->l, (rank + distance) % size, (rank - distance + size) % size, message_bytes));
    if (muon_ortho_create(&b->unit, 1, UNIT, UNIT, NULL, how->threads, how->backend) != MUON_OK)
        return cli_fail_library();
    const size_t bytes = (size_t)UNIT * UNIT * sizeof *b->in;
    b->in = tensors_alloc(bytes);
    b->out = tensors_alloc(bytes);
    bench_matrix_fill(b->in, UNIT, UNIT, 1);
    return run_unit(b);
}

static void close_beside(beside *b)
{
    close_line(&b->l);
    muon_ortho_destroy(b->unit);
    free(b->in);
    free(b->out);
}

/* In turns, so that whatever else happens on the machine happens to both. A message may take much longer
 * than alone: some transports move little of it each time that somebody looks. */
static int run_turns(beside *b, int64_t *times)
{
    DO(launch_agree(run_with(b, 1)));
    *times = 1 + (int64_t)(long_enough / TURNS / b->with);
    launch_max(times, 1);
    b->with = 0;
    b->units[1] = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        DO(launch_agree(run_alone(b, long_enough / TURNS)));
        DO(launch_agree(run_with(b, *times)));
    }
    return CLI_DONE;
}

int bench_rates_cost(muon_machine *m, const compute *how)
{
    int size = launch_size(), per_node = m->ranks_per_node < size ? (int)m->ranks_per_node : size;
    int64_t times = 0;
    beside b = {.alone = 0};
    m->processor_bandwidth = 0;
    if (size == 1) return CLI_DONE;
    int code = launch_agree(open_beside(&b, per_node < size ? per_node : 1, how));
    if (code == CLI_DONE) code = run_turns(&b, &times);
    close_beside(&b);
    DO(code);
    double lost = b.with - (double)b.units[1] * b.alone / (double)b.units[0];
    double each = mean(1e15 * lost / (2.0 * TURNS * (double)(times * message_bytes))) / 1e15;
    if (each > 0) m->processor_bandwidth = 1 / each;
    return CLI_DONE;
}

/* ---- the machine -------------------------------------------------------------------------------- */

int bench_rates_send(muon_machine *m, double *latency)
{
    int size = launch_size(), per_node = m->ranks_per_node < size ? (int)m->ranks_per_node : size;
    int several = per_node < size;
    if (size == 1) return CLI_DONE;
    if (several) DO(measure_bandwidth(&m->bandwidth, per_node));
    if (per_node > 1) DO(measure_bandwidth(&m->node_bandwidth, 1));
    if (per_node == 1) m->node_bandwidth = m->bandwidth;
    if (!several) m->bandwidth = m->node_bandwidth;
    return measure_latency(latency, several ? per_node : 1);
}
