/* Waves in time: what the busiest, a middling and the idlest rank gather, compute and scatter, and
 * when. */
#include "cli/plan/svg.h"
#include "muon/plan.h"

#include "cli/plan/units.h"

enum { SHOWN = 3, LANE = 17, LANE_GAP = 4, BLOCK = 3 * (LANE + LANE_GAP) + 30, HEAD = 52 };

static const char *const lane_class[PLAN_LANES] = {"gather", "work", "scatter"};
static const char *const lane_name[PLAN_LANES] = {"gather", "compute", "scatter"};

typedef struct shown {
    const char *role;
    int rank;
} shown;

/* As many of the three as there are ranks. */
static int choose(shown chosen[SHOWN], const plan_outcome *o)
{
    int n = o->nranks, count = 0;
    chosen[count++] = (shown){"the busiest", o->by_work[0]};
    if (n > 2) chosen[count++] = (shown){"in the middle", o->by_work[n / 2]};
    if (n > 1) chosen[count++] = (shown){"the idlest", o->by_work[n - 1]};
    return count;
}

double svg_waves_height(const plan_outcome *o)
{
    shown chosen[SHOWN];
    return HEAD + BLOCK * choose(chosen, o) + 44;
}

/* One span, with the wave's number if there is room for it. */
static void draw_span(FILE *out, const char *class, double begin, double end, double y, size_t wave)
{
    double width = end - begin;
    double gap = width > 4 ? 0.8 : 0; /* waves that follow each other stay apart */
    svg_rect(out, begin, y, width - gap, LANE, class);
    if (width > 24) svg_text(out, (begin + end) / 2, y + 12.5, SVG_MIDDLE, "on small", "%zu", wave);
}

/* Spans too narrow to be seen alone are drawn together with their neighbours. */
static void draw_lane(FILE *out, const plan_timeline *t, int lane, const svg_scale *scale, double y)
{
    const double visible = 1.5;
    double from = 0, to = -1;
    svg_rect(out, LEFT, y, RIGHT - LEFT, LANE, "track");
    for (size_t w = 0; w < t->nwaves; w++) {
        const plan_span *span = &t->waves[w][lane];
        double begin = LEFT + (RIGHT - LEFT) * span->begin / scale->end;
        double end = LEFT + (RIGHT - LEFT) * span->end / scale->end;
        if (end - begin <= 0) continue;
        if (end - begin < visible) {
            if (to >= from && begin - to > visible / 2) {
                svg_rect(out, from, y, to - from, LANE, lane_class[lane]);
                to = -1;
            }
            if (to < 0) from = begin;
            to = end;
            continue;
        }
        draw_span(out, lane_class[lane], begin, end, y, w);
    }
    if (to >= from) svg_rect(out, from, y, to - from, LANE, lane_class[lane]);
}

static void draw_block(FILE *out, const plan_timeline *t, const char *role, const svg_scale *scale,
                       double top)
{
    const muon_rank_load *load = &t->load;
    svg_text(out, LEFT, top + 14, SVG_START, "ink",
             "rank %d, %s: matrices %s, %s of work, %s of messages, %s sent, %s received", t->rank,
             role, units_count(load->matrices).text, units_seconds(load->work_seconds).text,
             units_seconds(load->message_seconds).text, units_bytes((double)load->bytes_sent).text,
             units_bytes((double)load->bytes_received).text);
    for (int lane = 0; lane < PLAN_LANES; lane++) {
        double y = top + 22 + lane * (LANE + LANE_GAP);
        svg_text(out, LEFT - 10, y + 13, SVG_END, "muted", "%s", lane_name[lane]);
        draw_lane(out, t, lane, scale, y);
    }
}

static int draw_blocks(FILE *out, const plan_timeline *lines, const shown *chosen, int count,
                       double top)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        if (lines[i].end > most) most = lines[i].end;
    svg_scale scale = svg_time_scale(most, 10);
    for (int i = 0; i < count; i++)
        draw_block(out, &lines[i], chosen[i].role, &scale, top + HEAD + i * BLOCK);
    svg_time_axis(out, &scale, top + HEAD + count * BLOCK - 6, top + HEAD + count * BLOCK);
    return CLI_DONE;
}

int svg_waves_panel(FILE *out, const plan_outcome *o, double top)
{
    plan_timeline lines[SHOWN] = {{0}};
    shown chosen[SHOWN];
    int count = choose(chosen, o), code = CLI_DONE;
    char text[128];
    snprintf(text, sizeof text, "%s wave%s, %d in flight; as if no rank waited for another",
             units_count(o->cost.waves).text, o->cost.waves == 1 ? "" : "s",
             o->what->config.in_flight);
    svg_title(out, top, "Waves in time", text);
    const svg_key keys[] = {
        {"gather", 0, "gather"}, {"work", 0, "compute"}, {"scatter", 0, "scatter"}};
    svg_legend(out, top + 18, keys, sizeof keys / sizeof keys[0]);
    for (int i = 0; i < count && code == CLI_DONE; i++)
        code = plan_timeline_make(&lines[i], o, chosen[i].rank);
    if (code == CLI_DONE) code = draw_blocks(out, lines, chosen, count, top);
    for (int i = 0; i < count; i++)
        plan_timeline_destroy(&lines[i]);
    return code;
}
