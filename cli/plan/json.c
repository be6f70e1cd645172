/* The plan for programs: one line of JSON. Keys are in docs/plan.md. */
#include "cli/core/report.h"
#include "cli/plan/outcome.h"
#include "muon/plan.h"
#include "train/report/web.h"

#include <stdio.h>

static void set_integer(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer(value));
}

static void set_number(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, report_number(value));
}

static void set_text(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, web_text(value));
}

static json_t *axes(const muon_mesh *mesh)
{
    json_t *object = json_object();
    for (int a = 0; a < mesh->naxes; a++)
        set_integer(object, mesh->axes[a], mesh->sizes[a]);
    return object;
}

/* The axes of the mesh, or of each mesh by its name if a config file has them. */
static json_t *meshes(const plan_case *c)
{
    if (c->config.meshes == &c->mesh) return axes(&c->mesh);
    json_t *object = json_object();
    for (size_t i = 0; i < c->config.nmeshes; i++)
        json_object_set_new(object, c->config.meshes[i].name, axes(&c->config.meshes[i]));
    return object;
}

static json_t *machine(const plan_case *c)
{
    const muon_machine *m = &c->config.machine;
    json_t *object = json_object();
    set_text(object, "profile", c->profile);
    set_number(object, "flops", m->flops);
    set_number(object, "node_bandwidth", m->node_bandwidth);
    set_number(object, "bandwidth", m->bandwidth);
    set_integer(object, "ranks_per_node", m->ranks_per_node);
    set_number(object, "latency", m->latency);
    set_number(object, "processor_bandwidth", m->processor_bandwidth);
    set_text(object, "wire", c->config.wire == MUON_BF16 ? "bf16" : "f32");
    return object;
}

static json_t *bounds(const plan_outcome *o)
{
    json_t *object = json_object();
    set_number(object, "work_seconds", o->prediction.bound_work);
    set_number(object, "matrix_seconds", o->prediction.bound_matrix);
    set_number(object, "bytes_seconds", o->prediction.bound_bytes);
    set_number(object, "teams_seconds", o->prediction.bound_teams);
    set_text(object, "binding", plan_outcome_bound(o).key);
    return object;
}

static json_t *scheme(const muon_scheme_cost *s, const muon_prediction *p)
{
    json_t *object = json_object();
    set_number(object, "makespan_seconds", s->makespan);
    set_number(object, "times", s->makespan / p->makespan);
    set_integer(object, "bytes_per_rank_max", s->bytes_max);
    set_integer(object, "padding_bytes", s->padding_bytes);
    return object;
}

json_t *plan_json_rank(int rank, const muon_rank_load *load)
{
    json_t *object = json_object();
    set_integer(object, "rank", rank);
    set_integer(object, "matrices", load->matrices);
    set_number(object, "flops", load->flops);
    set_number(object, "work_seconds", load->work_seconds);
    set_number(object, "message_seconds", load->message_seconds);
    set_integer(object, "messages_sent", load->messages_sent);
    set_integer(object, "messages_received", load->messages_received);
    set_integer(object, "bytes_sent", load->bytes_sent);
    set_integer(object, "bytes_received", load->bytes_received);
    set_integer(object, "teams", load->teams);
    set_number(object, "exchange_seconds", load->exchange_seconds);
    set_integer(object, "peers", load->peers);
    set_integer(object, "relayed_bytes", load->relayed_bytes);
    set_integer(object, "state_bytes", load->state_bytes);
    set_integer(object, "workspace_bytes", load->workspace_bytes);
    return object;
}

static int add_ranks(json_t *line, const plan_outcome *o)
{
    int chosen[PLAN_CHOSEN], count = plan_outcome_choose(o, chosen);
    json_t *list = json_array();
    json_object_set_new(line, "rank_loads", list);
    for (int i = 0; i < count; i++) {
        muon_rank_load load;
        DO(plan_outcome_rank(o, chosen[i], &load));
        json_array_append_new(list, plan_json_rank(chosen[i], &load));
    }
    return CLI_DONE;
}

json_t *plan_json(const plan_outcome *o)
{
    const muon_prediction *p = &o->prediction;
    char hash[20];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)muon_plan_get_hash(o->plan));
    json_t *line = json_object();
    set_text(line, "model", o->what->model);
    set_integer(line, "ranks", p->ranks);
    json_object_set_new(line, "mesh", meshes(o->what));
    json_object_set_new(line, "machine", machine(o->what));
    set_integer(line, "matrices", p->matrices);
    set_integer(line, "tensors", o->tensors);
    set_integer(line, "parameters", o->cost.muon_elements + o->cost.expert_elements);
    set_number(line, "flops", o->cost.flops);
    set_integer(line, "waves", p->waves);
    set_integer(line, "in_flight", o->cost.in_flight);
    set_number(line, "makespan_seconds", p->makespan);
    set_number(line, "lower_bound_seconds", p->lower_bound);
    json_object_set_new(line, "bounds", bounds(o));
    set_number(line, "imbalance", p->imbalance);
    set_integer(line, "teams", p->teams);
    set_integer(line, "team_max", p->team_max);
    set_integer(line, "matrices_per_rank_max", p->matrices_max);
    set_integer(line, "bytes_per_rank_max", p->bytes_max);
    set_integer(line, "bytes_per_rank_mean", p->bytes_mean);
    set_integer(line, "relayed_bytes", p->relayed_bytes);
    set_integer(line, "padding_bytes", p->padding_bytes);
    set_integer(line, "workspace_bytes_max", p->workspace_max);
    set_number(line, "plan_seconds", o->plan_seconds);
    set_text(line, "hash", hash);
    json_object_set_new(line, "padded", scheme(&o->padded, p));
    json_object_set_new(line, "round_robin", scheme(&o->round_robin, p));
    json_object_set_new(line, "busiest", plan_json_rank(o->by_work[0], &o->busiest));
    return line;
}

int plan_print_json(const plan_outcome *o, int ranks)
{
    json_t *line = plan_json(o);
    int code = ranks ? add_ranks(line, o) : CLI_DONE;
    if (code == CLI_DONE)
        report_line(line);
    else
        json_decref(line);
    return code;
}
