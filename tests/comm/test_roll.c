/* Roll calls: ranks that have waited in vain find out together for whom. */
#include "comm/roll.h"
#include "tests/world/ranks.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 17, ABSENT = -1 };

typedef struct scene {
    int size;
    int waits[MOST]; /* [rank] for whom; ABSENT: it does not come */
    const char *names;
} scene;

static void answer(int rank, const muon_comm *comm, void *arg)
{
    const scene *s = arg;
    if (s->waits[rank] == ABSENT) return;
    roll_waits waits = {0};
    muon__roll_wait(&waits, s->waits[rank]);
    char names[ROLL_NAMES];
    muon__roll_call(comm, &waits, 4,
                    names); /* hears for twice an eighth of it, or at least a second */
    rank_check(strcmp(names, s->names) == 0, "said \"%s\", want \"%s\"", names, s->names);
}

TEST(who_is_waited_for_and_silent_is_missing)
{
    static const scene scenes[] = {
        {2, {1, ABSENT}, "rank 1"},
        {2, {ABSENT, 0}, "rank 0"},
        {4, {1, 2, ABSENT, 1}, "rank 2"},         /* 0 and 3 wait for 1, and 1 for 2 */
        {5, {1, 2, 3, 4, ABSENT}, "rank 4"},      /* a chain */
        {5, {ABSENT, 0, 1, 2, 3}, "rank 0"},      /* the other way */
        {5, {2, 2, ABSENT, 2, ABSENT}, "rank 2"}, /* 4 is busy elsewhere: nobody waits for it */
        {5, {1, ABSENT, 1, ABSENT, 3}, "ranks 1, 3"},
        {3, {1, 2, 0}, ""}, /* all are here, and wait for each other */
        {17,
         {1, ABSENT, 3, ABSENT, 5, ABSENT, 7, ABSENT, 9, ABSENT, 11, ABSENT, 13, ABSENT, 15, ABSENT,
          15},
         "ranks 1, 3, 5, 7, 9, 11, 13, 15"},
    };
    for (size_t i = 0; i < COUNT(scenes); i++)
        ranks_run(scenes[i].size, answer, (void *)(uintptr_t)&scenes[i]);
}

/* Without memory, or with a transport that cannot send any more, a rank says what it knows itself. */
static muon_status cannot_open(void *self, muon_batch **out, muon_direction direction, int channel,
                               const muon_message *messages, size_t nmessages)
{
    (void)self, (void)out, (void)direction, (void)channel, (void)messages, (void)nmessages;
    return muon_error_set(MUON_E_COMM, "the cable is out");
}

TEST(who_cannot_hear_names_whom_it_waits_for)
{
    threads_world *world = NULL;
    assert_ok(muon__threads_create(&world, 4));
    muon_comm comm = *muon__threads_comm(world, 1);
    roll_waits waits = {0};
    char names[ROLL_NAMES];
    muon__roll_wait(&waits, 3);
    for (int64_t k = 0; k < 8; k++) {
        testlib_allow_allocations(k);
        muon__roll_call(&comm, &waits, 0, names);
        testlib_allow_allocations(-1);
        assert_string_equal(names, "rank 3");
    }
    muon_comm_ops broken = *comm.ops;
    broken.open = cannot_open;
    comm.ops = &broken;
    muon__roll_call(&comm, &waits, 0, names);
    assert_string_equal(names, "rank 3");
    muon__threads_destroy(world);
}
