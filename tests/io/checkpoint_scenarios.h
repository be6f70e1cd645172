/* checkpoint_scenarios.h - saves into roots of every kind, and what must hold whatever becomes of
 * them. */
#ifndef TESTS_IO_CHECKPOINT_SCENARIOS_H
#define TESTS_IO_CHECKPOINT_SCENARIOS_H

#include "tests/io/checkpoint_roots.h"
#include "tests/io/file_calls.h"

/* Steps that are there before, with 'a' in them; then one is saved with 'b'. */
typedef struct scenario {
    const char *what;
    int64_t before[4];
    int nbefore;
    int64_t step;
    int keep, replace;
    int64_t leftover;  /* of a killed save; 0: none */
    const char *after; /* when all went well */
} scenario;

static const scenario scenarios[] = {
    {"the first one", {0}, 0, 1, 3, 0, 0, "1"},
    {"one more", {1, 2}, 2, 3, 0, 0, 0, "1 2 3"},
    {"one more, with a leftover of the same", {1, 2}, 2, 3, 0, 0, 3, "1 2 3"},
    {"one more, with a leftover of another", {1, 2}, 2, 3, 0, 0, 2, "1 2 3"},
    {"two are to go", {1, 2, 3}, 3, 4, 2, 0, 0, "3 4"},
    {"the same again", {1, 2}, 2, 2, 0, 1, 0, "1 2"},
    {"the same again, and one is to go", {1, 2}, 2, 2, 1, 1, 0, "2"},
    {"back to an earlier one", {1, 2, 5, 6}, 4, 3, 0, 0, 0, "5 6 1 2 3"},
    {"back, and two are to go", {1, 2, 5, 6}, 4, 3, 3, 0, 0, "1 2 3"},
    {"back to one that exists", {1, 2, 5, 6}, 4, 2, 2, 1, 0, "1 2"},
};

static inline void prepare(const scenario *s)
{
    static char path[300];
    snprintf(path, sizeof path, "%s", in_scratch("root"));
    root = path;
    scratch_remove_tree(root);
    for (int i = 0; i < s->nbefore; i++)
        assert_ok(save(root, s->before[i], 'a', 0, 0));
    if (s->leftover > 0) {
        checkpoint_name name = muon__checkpoint_saving(s->leftover);
        assert_int_equal(mkdir(in_scratch("root/%s", name.text), 0777), 0);
        write_whole(in_scratch("root/%s/large", name.text), "xxx", 3);
    }
}

static inline muon_status run(const scenario *s)
{
    return save(root, s->step, 'b', s->keep, s->replace);
}

static inline int has_hidden(void)
{
    const char *names = names_in(root);
    return names[0] == '.' || strstr(names, " .") != NULL;
}

/* What must hold at every moment. 1: the new one is there. */
static inline int check_root(const scenario *s, const char *when, long k)
{
    if (!exists(root)) return 0;
    int is_new = content_of(root, s->step) == 'b';
    for (int i = 0; i < s->nbefore; i++) {
        char content = content_of(root, s->before[i]);
        int may_differ = is_new && (s->keep > 0 || s->before[i] == s->step);
        if (content != 'a' && !may_differ)
            fail_msg("%s, %s call %ld: step %lld is lost; in the root: %s", s->what, when, k,
                     (long long)s->before[i], names_in(root));
    }
    for (int64_t step = 0; step < 10; step++) { /* what has the name is complete */
        const char *path = in_scratch("root/%s", muon__checkpoint_name(step).text);
        if (exists(path) && content_of(root, step) == 0)
            fail_msg("%s, %s call %ld: half of %s is there: %s", s->what, when, k, path,
                     muon_last_error());
    }
    const char *latest = latest_of(root);
    if (latest[0] != '\0' && content_of(root, muon__checkpoint_step_of(latest)) == 0)
        fail_msg("%s, %s call %ld: latest is %s; in the root: %s", s->what, when, k, latest,
                 names_in(root));
    return is_new;
}

/* The next save of anything, and of the same step, succeeds and leaves nothing else. */
static inline void check_next(const scenario *s, const char *when, long k)
{
    assert_ok(save(root, 9, 'z', 0, 0));
    assert_string_equal(latest_of(root), "step-00000009");
    if (has_hidden())
        fail_msg("%s, %s call %ld: left in the root: %s", s->what, when, k, names_in(root));
    assert_ok(save(root, s->step, 'c', 0, 1));
    assert_int_equal(content_of(root, s->step), 'c');
    assert_string_equal(latest_of(root), muon__checkpoint_name(s->step).text);
    assert_false(has_hidden());
}

/* Under a sanitizer not every call, but still every kind of them. */
static inline long stride(void)
{
    return testlib_quick() ? 3 : 1;
}

#endif
