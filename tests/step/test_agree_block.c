/* The words of two ranks become one, in any order and grouping. */
#include "step/agree_describe.h"
#include "tests/support/testlib.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 12 };

/* Combines items first .. first + n - 1 as some tree, drawn at random; either half may come first. */
static void combine_sames(same *items, int n)
{
    if (n <= 1) return;
    int left = 1 + (int)(testlib_bits() % (uint64_t)(n - 1));
    combine_sames(items, left);
    combine_sames(items + left, n - left);
    if (testlib_bits() & 1) {
        muon__same_combine(&items[0], &items[left]);
    } else {
        muon__same_combine(&items[left], &items[0]);
        items[0] = items[left];
    }
}

static void shuffle(int *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(testlib_bits() % (uint64_t)(i + 1));
        int swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
}

TEST(the_lowest_rank_and_the_first_that_differs_are_known)
{
    testlib_seed(1);
    for (int round = 0; round < 20000; round++) {
        int n = 1 + (int)(testlib_bits() % MOST), order[MOST];
        same of_rank[MOST], items[MOST], want = muon__same_none();
        for (int rank = 0; rank < n; rank++) {
            uint64_t draw = testlib_bits() % 8;
            of_rank[rank] = draw == 7 ? muon__same_none() : muon__same_of(rank, 40 + draw / 3);
            if (draw == 7) continue;
            if (want.rank < 0)
                want = of_rank[rank];
            else if (want.other < 0 && of_rank[rank].value != want.value) {
                want.other = rank;
                want.other_value = of_rank[rank].value;
            }
        }
        shuffle(order, n);
        for (int i = 0; i < n; i++)
            items[i] = of_rank[order[i]];
        combine_sames(items, n);
        if (items[0].rank != want.rank || items[0].other != want.other ||
            (want.rank >= 0 && items[0].value != want.value) ||
            (want.other >= 0 && items[0].other_value != want.other_value))
            fail_msg("round %d, %d ranks: got ranks %d and %d, want %d and %d", round, n,
                     (int)items[0].rank, (int)items[0].other, (int)want.rank, (int)want.other);
    }
}

TEST(of_all_failures_the_lowest_rank_speaks)
{
    testlib_seed(2);
    for (int round = 0; round < 200; round++) {
        int n = 1 + (int)(testlib_bits() % MOST), order[MOST], want = -1;
        said words[MOST], all;
        for (int rank = 0; rank < n; rank++) {
            int fails = testlib_bits() % 3 == 0;
            if (fails) muon__fail(MUON_E_IO, "text of %d", rank);
            muon__said_set(&words[rank], rank, fails ? MUON_E_IO : MUON_OK);
            if (fails && want < 0) want = rank;
        }
        shuffle(order, n);
        muon__said_set(&all, 0, MUON_OK);
        for (int i = 0; i < n; i++)
            muon__said_combine(&all, &words[order[i]]);
        char message[64];
        snprintf(message, sizeof message, "rank %d: text of %d", want, want);
        if (want < 0)
            assert_ok(muon__said_result(&all, n + 1));
        else
            assert_fails(muon__said_result(&all, n + 1), MUON_E_IO, message);
    }
}

TEST(differences_are_put_into_words)
{
    static const struct {
        const char *a, *b, *want;
    } cases[] = {
        {"group 'g'\nlr\t1\nclip\t0\n", "group 'g'\nlr\t2\nclip\t1\n",
         "group 'g': lr is 1 on rank 3, 2 on rank 5"},
        {"group 'g'\nlr\t1\nclip\t0\n", "group 'other'\nlr\t1\nclip\t1\n",
         "group 'g': clip is 0 on rank 3, 1 on rank 5"},
        {"param 'a'\n!param 7\t'a'\n", "param 'b'\n!param 7\t'b'\n",
         "param 7 is 'a' on rank 3, 'b' on rank 5"},
        {"param 'a'\n!param 7\t'a'\nplace\t#1\n", "param 'a'\n!param 7\t'a'\nplace\t#2\n",
         "param 'a': place differs between ranks 3 and 5"},
        {"config\nseed\t1\n", "config\nseed\t1\n", "config differs between ranks 3 and 5"},
        {"config\nseed\t1\npath\tx", "config\nseed\t1\n", "config differs between ranks 3 and 5"},
        {"config\nseed\t10\n", "config\nseed\t1\n", "config: seed is 10 on rank 3, 1 on rank 5"},
        {"config\n", "config\n", "config differs between ranks 3 and 5"},
        {"", "", " differs between ranks 3 and 5"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char got[256];
        text t = muon__text_in(got, sizeof got);
        muon__describe_difference(&t, cases[i].a, 3, cases[i].b, 5);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("case %zu: \"%s\", want \"%s\"", i, got, cases[i].want);
    }
}

/* A description that is too long is cut, and compared as far as it goes. */
TEST(a_description_may_be_too_long)
{
    static step_setting a[600], b[600];
    for (size_t i = 0; i < COUNT(a); i++)
        a[i] = b[i] = (step_setting){"something", 1.0 / 3};
    b[599].value = 2;
    char texts[2][QUESTION_TEXT], got[256];
    text t = muon__text_in(texts[0], sizeof texts[0]);
    muon__describe_settings(&t, "muon_step", a, COUNT(a));
    t = muon__text_in(texts[1], sizeof texts[1]);
    muon__describe_settings(&t, "muon_step", b, COUNT(b));
    t = muon__text_in(got, sizeof got);
    muon__describe_difference(&t, texts[0], 0, texts[1], 1);
    assert_string_equal(got, "muon_step differs between ranks 0 and 1");
    b[3].value = 2;
    t = muon__text_in(texts[1], sizeof texts[1]);
    muon__describe_settings(&t, "muon_step", b, COUNT(b));
    t = muon__text_in(got, sizeof got);
    muon__describe_difference(&t, texts[0], 0, texts[1], 1);
    assert_string_equal(got, "muon_step: something is 0.33333333333333331 on rank 0, 2 on rank 1");
}
