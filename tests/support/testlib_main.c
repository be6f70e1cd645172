/* testlib_main.c - the tests of a program in the order of its source, and a main that runs them. */
#include "testlib.h"

#include <stdlib.h>

static testlib_test *first; /* a list in that order */
static void (*before_all)(void), (*after_all)(void), (*before_each)(void), (*after_each)(void);

/* Constructors of one file run in any order. */
void testlib_add(testlib_test *test)
{
    testlib_test **at = &first;
    while (*at && (*at)->number < test->number)
        at = &(*at)->next;
    test->next = *at;
    *at = test;
}

void testlib_around_all(void (*before)(void), void (*after)(void))
{
    before_all = before;
    after_all = after;
}

void testlib_around_each(void (*before)(void), void (*after)(void))
{
    before_each = before;
    after_each = after;
}

const testlib_test *testlib_first(void)
{
    return first;
}

static int call(void (*function)(void))
{
    if (function) function();
    return 0;
}

static int set_up_all(void **state)
{
    (void)state;
    return call(before_all);
}

static int tear_down_all(void **state)
{
    (void)state;
    return call(after_all);
}

static int set_up_each(void **state)
{
    (void)state;
    return call(before_each);
}

static int tear_down_each(void **state)
{
    (void)state;
    return call(after_each);
}

static void run_one(void **state)
{
    const testlib_test *test = *state;
    test->run();
}

int testlib_run(void)
{
    size_t n = 0;
    for (testlib_test *t = first; t; t = t->next)
        n++;
    struct CMUnitTest *tests = calloc(n, sizeof *tests);
    if (!tests) return 1;
    n = 0;
    for (testlib_test *t = first; t; t = t->next)
        tests[n++] = (struct CMUnitTest){t->name, run_one, set_up_each, tear_down_each, t};
    int failed = _cmocka_run_group_tests("tests", tests, n, set_up_all, tear_down_all);
    free(tests);
    return failed;
}

/* Weak: a program with arguments of its own has its own main, which calls testlib_run. */
__attribute__((weak)) int main(void)
{
    return testlib_run();
}
