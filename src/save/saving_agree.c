/* Do all ranks save the same thing? What they were given, as a list of entries; only if they disagree is
 * it searched for the first that differs. */
#include "base/digest.h"
#include "base/text.h"
#include "save/saving.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ARGUMENTS = 8, SHOWN = 300 };

typedef struct entry_text { /* for people */
    char name[SHOWN], value[SHOWN];
} entry_text;

static size_t count_entries(const saving *s)
{
    return ARGUMENTS + s->meta.n;
}

static void show_count(entry_text *e, const char *name, int64_t value)
{
    snprintf(e->name, sizeof e->name, "%s", name);
    snprintf(e->value, sizeof e->value, "%" PRId64, value);
}

static void show_argument(entry_text *e, const saving *s, size_t index)
{
    const muon_save_args *a = &s->args;
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"step", a->step},
                  {"file_bytes", a->file_bytes},
                  {"keep", a->keep},
                  {"replace", a->replace},
                  {"beside", s->beside},
                  {"nmetadata", (int64_t)a->nmetadata},
                  {"metadata", (int64_t)s->meta.n}};
    if (index < sizeof counts / sizeof *counts) {
        show_count(e, counts[index].name, counts[index].value);
        return;
    }
    snprintf(e->name, sizeof e->name, "buffers");
    snprintf(e->value, sizeof e->value, "%s", a->buffers ? "given" : "NULL");
}

/* A long value may differ behind what is shown. */
static void show(entry_text *e, const saving *s, size_t index)
{
    if (index < ARGUMENTS) {
        show_argument(e, s, index);
        return;
    }
    const muon_st_entry *m = &s->meta.list[index - ARGUMENTS];
    snprintf(e->name, sizeof e->name, "metadata '%.200s'", m->key);
    snprintf(e->value, sizeof e->value, "'%.200s'%s", m->value,
             strlen(m->value) > 200 ? "..." : "");
}

static uint64_t hash_entry(const void *context, size_t index)
{
    const saving *s = context;
    uint64_t digest = MUON__DIGEST_START;
    if (index < ARGUMENTS) {
        entry_text e;
        show_argument(&e, s, index);
        muon__digest_text(&digest, e.value);
    } else if (index < count_entries(s)) { /* nmetadata comes first, if there are not as many */
        muon__digest_text(&digest, s->meta.list[index - ARGUMENTS].key);
        muon__digest_text(&digest, s->meta.list[index - ARGUMENTS].value);
    }
    return digest;
}

/* The two ranks say what they have there. */
static muon_status tell(agree *all, const saving *s, size_t index, const same *pair,
                        const char *stage)
{
    text mine;
    const question *q = muon__agree_begin_pair(all, pair, &mine);
    if (mine.size > 0) {
        entry_text e;
        show(&e, s, index);
        muon__text_add(&mine, "%s\t%s", e.name, e.value);
    }
    TRY(muon__agree_ask(all, stage));
    const char *a = q->text[0], *b = q->text[1];
    size_t name_a = strcspn(a, "\t"), name_b = strcspn(b, "\t");
    if (name_a == name_b && memcmp(a, b, name_a) == 0)
        FAIL(E_DISAGREE, "%s: %.*s is %s on rank %d, %s on rank %d", stage, (int)name_a, a,
             a + name_a + 1, (int)pair->rank, b + name_b + 1, (int)pair->other);
    FAIL(E_DISAGREE, "%s: rank %d has %.*s where rank %d has %.*s", stage, (int)pair->rank,
         (int)name_a, a, (int)pair->other, (int)name_b, b);
}

static muon_status find(agree *all, const saving *s, const char *stage)
{
    size_t index;
    same pair;
    /* As far as all lists go: their lengths are among the first entries, and are found first. */
    TRY(muon__agree_find(all, stage, ARGUMENTS, hash_entry, s, &index, &pair));
    if (pair.other < 0)
        TRY(muon__agree_find(all, stage, count_entries(s), hash_entry, s, &index, &pair));
    REQUIRE(pair.other >= 0, E_DISAGREE, "%s: ranks disagree, and agree again", stage);
    return tell(all, s, index, &pair, stage);
}

muon_status muon__saving_agree(muon_opt *opt, const saving *s, muon_status status,
                               const char *stage)
{
    uint64_t digest = s ? muon__agree_hash(hash_entry, s, 0, count_entries(s)) : 0;
    same pair;
    TRY(muon__opt_settle(opt, muon__agree_same(&opt->agree, stage, status, digest, &pair)));
    if (pair.other < 0) return MUON_OK;
    assert(s); /* without one, status is a failure, and all ranks have returned it */
    return muon__opt_settle(opt, find(&opt->agree, s, stage));
}
