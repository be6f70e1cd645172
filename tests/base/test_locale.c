/* test_locale.c - a host whose numbers have a comma: what is read, printed and saved has a point all the
 * same, and the host keeps its comma, in its callbacks too. */
#define _GNU_SOURCE /* duplocale */
#include "muon/plan.h"
#include "tests/save/save_fleet.h"

#include <locale.h>

/* ---- A locale with a decimal comma. Machines need not have one installed, so the test makes it: the
 * file of LC_NUMERIC as the C library of GNU reads it, in a directory that LOCPATH names. */

static void put_word(FILE *file, uint32_t word)
{
    fwrite(&word, sizeof word, 1, file);
}

static void write_numeric(const char *path)
{
    static const char texts[12] = ",\0.\0\0\0UTF-8"; /* point, thousands, grouping, code set */
    enum { FIELDS = 6, HEAD = (2 + FIELDS) * 4 };
    static const uint32_t at[FIELDS] = {HEAD,      HEAD + 2,      HEAD + 4,
                                        HEAD + 12, HEAD + 12 + 4, HEAD + 6};
    FILE *file = fopen(path, "wb");
    put_word(file, 0x20031115u ^ LC_NUMERIC);
    put_word(file, FIELDS);
    for (int i = 0; i < FIELDS; i++)
        put_word(file, at[i]);
    fwrite(texts, 1, sizeof texts, file);
    put_word(file, ',');
    put_word(file, '.');
    fclose(file);
}

static scratch dir;

static void use_commas(void)
{
    char path[600];
    dir = scratch_make();
    snprintf(path, sizeof path, "%s/comma", dir.path);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/comma/LC_NUMERIC", dir.path);
    write_numeric(path);
    setenv("LOCPATH", dir.path, 1);
    if (!setlocale(LC_NUMERIC, "comma") || localeconv()->decimal_point[0] != ',')
        fail_msg("this C library does not take the locale that the test has made");
}

static void remove_dir(void)
{
    scratch_remove(&dir);
}

AROUND_ALL(use_commas, remove_dir)

static int has_comma(void)
{
    char text[16];
    snprintf(text, sizeof text, "%.1f", 1.5);
    return strcmp(text, "1,5") == 0;
}

/* ---- The tests; the locale of the process has commas */

TEST(a_group_is_set_with_a_point)
{
    muon_group group;
    muon_group_init(&group, sizeof group);
    assert_ok(muon_group_set(&group, "lr", "0.02"));
    assert_true(group.lr == 0.02);
    assert_fails(muon_group_set(&group, "lr", "0,02"), MUON_E_VALUE, "lr is '0,02'");
    char text[MUON_FIELD_TEXT];
    assert_ok(muon_group_get(&group, "lr", text, sizeof text));
    assert_string_equal(text, "0.02");
    assert_fails(muon_group_set(&group, "momentum", "1.5"), MUON_E_VALUE, "1.5");
    assert_true(has_comma());
}

static void keep_text(void *user, const char *text, size_t length)
{
    char *to = user;
    if (!has_comma()) *to = '!';
    strncat(to, text, length);
}

static void keep_log(void *user, muon_log_level level, const char *message)
{
    (void)level;
    keep_text(user, message, strlen(message));
}

TEST(a_plan_is_printed_with_points)
{
    fleet f;
    save_fleet(&f, 2);
    muon_plan *plan = NULL;
    assert_ok(fleet_plan(&plan, &f, 2));
    static char text[8192];
    *text = 0;
    muon_plan_print(plan, keep_text, text);
    assert_non_null(strstr(text, "Muon 0.01M"));
    assert_true(text[0] == 'p');
    muon_plan_destroy(plan);
    assert_true(has_comma());
}

TEST(a_checkpoint_has_points_and_comes_back)
{
    static char text[4096];
    *text = 0;
    fleet f;
    save_fleet(&f, 1);
    f.config.log = keep_log;
    f.config.user = text;
    f.config.clip_norm = 2.5;
    ship s;
    assert_ok(ship_create(&s, &f, NULL));
    assert_ok(ship_run(&s, 1, 2));
    char root[600];
    snprintf(root, sizeof root, "%s/run", dir.path);
    assert_ok(ship_save(&s, root, 2));
    muon_checkpoint *c = NULL;
    assert_ok(muon_checkpoint_open(&c, root));
    assert_string_equal(muon_checkpoint_get_metadata(c, "muon.group.0.lr"), "0.02");
    muon_checkpoint_close(c);
    assert_ok(muon_opt_set_lr(s.opt, 0, 0.25));
    assert_ok(muon_opt_set_clip_norm(s.opt, 1.5));
    int64_t step;
    *text = 0;
    assert_ok(ship_load(&s, root, &step));
    if (!strstr(text, "clip_norm is 1.5, was 2.5")) fail_msg("the log has: %s", text);
    assert_true(text[0] != '!');
    muon_load_args args = load_args(&s);
    args.restore_settings = 1;
    assert_ok(muon_load(s.opt, root, &args, &step));
    muon_group group;
    muon_group_init(&group, sizeof group);
    assert_ok(muon_opt_get_group(s.opt, 0, &group));
    assert_true(group.lr == 0.02);
    ship_destroy(&s);
    assert_true(has_comma());
}

/* uselocale: of one thread, beside that of the process. */
TEST(a_locale_of_the_thread_stays_the_threads)
{
    locale_t comma = duplocale(LC_GLOBAL_LOCALE);
    setlocale(LC_NUMERIC, "C");
    assert_true(comma != (locale_t)0);
    uselocale(comma);
    a_group_is_set_with_a_point();
    assert_true(uselocale((locale_t)0) == comma);
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(comma);
}
