/* test_versioned.c - structs of programs that are older, newer or careless. */
#include "tests/support/testlib.h"

#include <string.h>

#include "base/versioned.h"

/* One struct as three versions of the library knew it. */
typedef struct thing_old {
    size_t struct_size;
    double a;
} thing_old;

typedef struct thing {
    size_t struct_size;
    double a;
    double b;
} thing;

typedef struct thing_new {
    size_t struct_size;
    double a;
    double b;
    double c[4];
} thing_new;

static const thing defaults = {.a = 1, .b = 2};

static muon_status load(thing *out, const void *src)
{
    *out = defaults;
    return muon__struct_load(out, sizeof *out, sizeof(thing_old), src, "muon_thing");
}

TEST(a_struct_of_this_version_is_taken_as_it_is)
{
    thing given = {sizeof given, 10, 20}, got;
    assert_ok(load(&got, &given));
    assert_true(got.struct_size == sizeof got && got.a == 10 && got.b == 20);
}

TEST(an_older_program_keeps_the_defaults_of_fields_it_does_not_know)
{
    thing_old given = {sizeof given, 10};
    thing got;
    assert_ok(load(&got, &given));
    assert_true(got.struct_size == sizeof got && got.a == 10 && got.b == 2);
}

TEST(a_newer_program_is_welcome_until_it_sets_a_newer_field)
{
    thing_new given = {.struct_size = sizeof given, .a = 10, .b = 20};
    thing got;
    assert_ok(load(&got, &given));
    assert_true(got.struct_size == sizeof got && got.a == 10 && got.b == 20);

    ((char *)&given)[sizeof given - 1] = 1; /* the very last byte counts too */
    assert_fails(load(&got, &given), MUON_E_VERSION, "muon_thing: byte 55 of 56 is set");
    assert_true(got.a == 1 && got.b == 2);
}

TEST(a_struct_may_grow_by_as_much_as_is_said)
{
    static size_t newest[(sizeof(thing) + MUON__STRUCT_GROWTH) / sizeof(size_t)];
    thing got;
    newest[0] = sizeof newest;
    assert_ok(load(&got, newest));
    assert_ok(muon__struct_store(newest, sizeof newest, &got, sizeof got, "muon_thing"));
}

TEST(a_size_that_makes_no_sense_is_refused_with_the_number)
{
    static const struct {
        size_t size;
        const char *part;
    } cases[] = {
        {0, "struct_size is 0, must be at least 16: call muon_thing_init first"},
        {8, "struct_size is 8, must be at least 16"},
        {15, "struct_size is 15"},
        {20,
         "struct_size is 20, which is no size of muon_thing in any version"}, /* not a multiple of 8 */
        {sizeof(thing) + MUON__STRUCT_GROWTH + 8, "struct_size is 4128"},
        {SIZE_MAX, "struct_size is 18446744073709551615"}, /* nothing past `given` is read */
        {SIZE_MAX - 7, "struct_size is 18446744073709551608"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        thing given = {cases[i].size, 10, 20}, got;
        assert_fails(load(&got, &given), MUON_E_VERSION, cases[i].part);
        assert_true(got.a == 1 && got.b == 2);
    }
    thing got;
    assert_int_equal(load(&got, NULL), MUON_E_ARG);
    assert_string_equal(muon_last_error(), "muon_thing is NULL");
}

TEST(arrays_go_by_the_size_of_their_first_element)
{
    thing_new newer[3] = {{sizeof *newer, 1, 2, {0}}, {sizeof *newer, 3, 4, {0}}, {0}};
    thing_old older[3] = {{sizeof *older, 5}, {sizeof *older, 6}, {sizeof *older, 7}};
    thing got = defaults;
    assert_ptr_equal(muon__struct_at(newer, 2), &newer[2]);
    assert_ptr_equal(muon__struct_at(older, 2), &older[2]);

    assert_ok(muon__struct_load_at(&got, sizeof got, sizeof(thing_old), newer, 1, "muon_thing"));
    assert_true(got.a == 3 && got.b == 4);
    got = defaults;
    assert_ok(muon__struct_load_at(&got, sizeof got, sizeof(thing_old), older, 2, "muon_thing"));
    assert_true(got.a == 7 && got.b == 2);

    assert_fails(
        muon__struct_load_at(&got, sizeof got, sizeof(thing_old), newer, 2, "muon_thing"),
        MUON_E_VERSION,
        "muon_thing[2]: struct_size is 0, but that of element 0 is 56: call muon_thing_init");
    newer[1].c[3] = 1;
    assert_fails(muon__struct_load_at(&got, sizeof got, sizeof(thing_old), newer, 1, "muon_thing"),
                 MUON_E_VERSION, "muon_thing[1]: byte ");
    newer[0].struct_size = 0; /* must not be used as a distance */
    assert_fails(muon__struct_load_at(&got, sizeof got, sizeof(thing_old), newer, 1, "muon_thing"),
                 MUON_E_VERSION, "muon_thing[0]: struct_size is 0");
    assert_int_equal(
        muon__struct_load_at(&got, sizeof got, sizeof(thing_old), NULL, 0, "muon_thing"),
        MUON_E_ARG);
}

TEST(init_writes_exactly_the_bytes_the_program_has)
{
    char bytes[sizeof(thing_new) + 1];
    for (size_t size = 0; size <= sizeof(thing_new); size++) {
        memset(bytes, 0x5a, sizeof bytes);
        muon__struct_init(bytes, sizeof defaults, &defaults, size);
        thing want = defaults;
        want.struct_size = size;
        size_t known = size < sizeof want ? size : sizeof want;
        if (size >= sizeof size) assert_memory_equal(bytes, &want, known);
        for (size_t i = known; i < size; i++)
            assert_int_equal(bytes[i], 0);
        assert_int_equal(bytes[size], 0x5a);
    }
}

TEST(store_writes_exactly_the_bytes_the_program_has)
{
    char bytes[sizeof(thing_new) + 1];
    thing have = {7, 10, 20};
    for (size_t size = 1; size <= sizeof(thing_new); size++) {
        memset(bytes, 0x5a, sizeof bytes);
        assert_ok(muon__struct_store(bytes, size, &have, sizeof have, "muon_thing"));
        size_t known = size < sizeof have ? size : sizeof have;
        assert_memory_equal(bytes, &have, known);
        for (size_t i = known; i < size; i++)
            assert_int_equal(bytes[i], 0);
        assert_int_equal(bytes[size], 0x5a);
    }
    memset(bytes, 0x5a, sizeof bytes);
    assert_fails(muon__struct_store(bytes, 0, &have, sizeof have, "muon_thing"), MUON_E_VERSION,
                 "muon_thing: the size passed is 0");
    assert_fails(muon__struct_store(bytes, SIZE_MAX, &have, sizeof have, "muon_thing"),
                 MUON_E_VERSION, "pass sizeof(muon_thing)");
    assert_int_equal(bytes[0], 0x5a);
    assert_int_equal(muon__struct_store(NULL, 24, &have, sizeof have, "muon_thing"), MUON_E_ARG);
}

TEST(init_then_load_is_the_identity_for_any_age_of_program)
{
    thing_old older;
    thing_new newer;
    thing got;
    muon__struct_init(&older, sizeof defaults, &defaults, sizeof older);
    assert_ok(load(&got, &older));
    assert_true(got.a == 1 && got.b == 2);
    memset(&newer, 0x5a, sizeof newer);
    muon__struct_init(&newer, sizeof defaults, &defaults, sizeof newer);
    assert_ok(load(&got, &newer));
    assert_true(got.a == 1 && got.b == 2);
}
