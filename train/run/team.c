#include "train/run/team.h"

#include "base/memory.h"
#include "comm/agree.h"

#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 64 }; /* that a place has room for; longer lists go in several turns */

typedef struct place { /* of one rank; filled by nobody else */
    int64_t taken;
    double numbers[NUMBERS];
} place;

struct team {
    const muon_comm *comm;
    int rank, size;
    double timeout;
    const char *stage;
    agree agree;
    tree *words; /* its block is place[size] */
};

/* Each place is filled once: neither order nor grouping matters. */
static void combine(void *user, void *into, const void *from)
{
    const team *t = user;
    place *mine = into;
    const place *theirs = from;
    for (int i = 0; i < t->size; i++)
        if (theirs[i].taken) mine[i] = theirs[i];
}

muon_status team_create(team **out, const muon_comm *comm, double timeout, const char *stage)
{
    team *t = NULL;
    TRY(CALLOC(&t, 1, "a team"));
    t->comm = comm;
    t->rank = comm ? comm->rank : 0;
    t->size = comm ? comm->size : 1;
    t->timeout = timeout;
    t->stage = stage;
    muon_status status = muon__agree_open(&t->agree, comm, CHANNEL_SPARE, timeout);
    if (status == MUON_OK)
        status = muon__tree_create(&t->words, comm, CHANNEL_SPARE, (size_t)t->size * sizeof(place),
                                   combine, t, timeout);
    if (status != MUON_OK) {
        team_destroy(t);
        return status;
    }
    *out = t;
    return MUON_OK;
}

void team_destroy(team *t)
{
    if (!t) return;
    muon__agree_close(&t->agree);
    muon__tree_destroy(t->words);
    free(t);
}

int team_rank(const team *t)
{
    return t->rank;
}

int team_size(const team *t)
{
    return t->size;
}

const muon_comm *team_comm(const team *t)
{
    return t->comm;
}

double team_timeout(const team *t)
{
    return t->timeout;
}

/* This rank's place, and nobody else's numbers. */
static double *start(team *t)
{
    place *places = muon__tree_block(t->words);
    memset(places, 0, (size_t)t->size * sizeof *places);
    places[t->rank].taken = 1;
    return places[t->rank].numbers;
}

static muon_status finish(team *t, const place **all)
{
    TRY(muon__tree_run(t->words, t->stage));
    *all = muon__tree_block(t->words);
    return MUON_OK;
}

muon_status team_agree(team *t, muon_status status)
{
    return muon__agree_status(&t->agree, t->stage, status);
}

muon_status team_share(team *t, const double *mine, double *all, size_t count)
{
    for (size_t at = 0; at < count; at += NUMBERS) {
        const place *places = NULL;
        size_t n = count - at < NUMBERS ? count - at : NUMBERS;
        memcpy(start(t), mine + at, n * sizeof *mine);
        TRY(finish(t, &places));
        for (int i = 0; i < t->size; i++)
            memcpy(all + (size_t)i * count + at, places[i].numbers, n * sizeof *all);
    }
    return MUON_OK;
}

muon_status team_sum(team *t, double *values, size_t count)
{
    for (size_t at = 0; at < count; at += NUMBERS) {
        const place *places = NULL;
        size_t n = count - at < NUMBERS ? count - at : NUMBERS;
        memcpy(start(t), values + at, n * sizeof *values);
        TRY(finish(t, &places));
        for (size_t j = 0; j < n; j++) {
            double sum = places[0].numbers[j];
            for (int i = 1; i < t->size; i++)
                sum += places[i].numbers[j];
            values[at + j] = sum;
        }
    }
    return MUON_OK;
}

muon_status team_move(team *t, muon_direction direction, void *data, size_t bytes, int rank)
{
    muon_batch *batch = NULL;
    muon_message message = {data, (int64_t)bytes, rank};
    TRY(muon__comm_open(t->comm, &batch, direction, CHANNEL_SPARE, &message, bytes > 0));
    muon_status status = muon__comm_start(t->comm, batch);
    if (status == MUON_OK) status = muon__comm_wait(t->comm, batch, t->timeout, "%s", t->stage);
    muon__comm_close(t->comm, batch);
    return status;
}
