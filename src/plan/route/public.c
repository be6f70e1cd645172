/* The functions of muon/route.h that make, read and destroy a route. */
#include "base/memory.h"
#include "base/mode.h"
#include "base/versioned.h"
#include "plan/route/lists.h"

#include <stdlib.h>

muon_status muon_route_create(muon_route **out, const muon_plan *plan, int rank)
{
    OWN_MODE;
    REQUIRE(out && plan, E_ARG, "muon_route_create: out and plan must not be NULL");
    REQUIRE(rank >= 0 && rank < plan->nranks, E_ARG, "rank %d does not exist: the plan has %d",
            rank, plan->nranks);
    REQUIRE(!plan->relayed, E_ARG,
            "muon_route_create: ranks relay messages in this plan, because config.peers_max is "
            "%lld; a route needs a plan with peers_max 0",
            (long long)plan->config.peers_max);
    muon_route *made = NULL;
    TRY(CALLOC(&made, 1, "route"));
    muon_status status = muon__route_lists_make(made, plan, rank);
    if (status != MUON_OK) {
        muon_route_destroy(made);
        return status;
    }
    *out = made;
    return MUON_OK;
}

void muon_route_destroy(muon_route *route)
{
    if (!route) return;
    for (int list = 0; list < MUON_ROUTE_NLISTS; list++) {
        free(route->lists[list].pieces);
        free(route->lists[list].piece_first);
        free(route->lists[list].messages);
        free(route->lists[list].message_first);
    }
    free(route->owned);
    free(route->owned_first);
    free(route);
}

/* ---- Reading it */

static int exists(const muon_route *route, size_t wave, muon_route_list list)
{
    return route && wave < route->nwaves && (int)list >= 0 && list < MUON_ROUTE_NLISTS;
}

/* Where entry `index` of a wave is in an array. */
static muon_status find(size_t *at, const muon_route *route, size_t wave, const size_t *first,
                        size_t index, const char *what)
{
    REQUIRE(wave < route->nwaves, E_ARG, "wave %zu does not exist: the route has %zu", wave,
            route->nwaves);
    size_t n = first[wave + 1] - first[wave];
    REQUIRE(index < n, E_ARG, "%s %zu does not exist: wave %zu has %zu", what, index, wave, n);
    *at = first[wave] + index;
    return MUON_OK;
}

static muon_status check_list(const muon_route *route, muon_route_list list)
{
    REQUIRE(route, E_ARG, "route must not be NULL");
    REQUIRE((int)list >= 0 && list < MUON_ROUTE_NLISTS, E_ARG,
            "list %d does not exist: a route has %d", (int)list, MUON_ROUTE_NLISTS);
    return MUON_OK;
}

size_t muon_route_count_waves(const muon_route *route)
{
    return route ? route->nwaves : 0;
}

size_t muon_route_count_owned(const muon_route *route, size_t wave)
{
    if (!exists(route, wave, MUON_ROUTE_LOCAL)) return 0;
    return route->owned_first[wave + 1] - route->owned_first[wave];
}

muon_status muon_route_get_owned(const muon_route *route, size_t wave, size_t index, size_t *matrix)
{
    REQUIRE(route && matrix, E_ARG, "muon_route_get_owned: route and matrix must not be NULL");
    size_t at;
    TRY(find(&at, route, wave, route->owned_first, index, "owned matrix"));
    *matrix = route->owned[at];
    return MUON_OK;
}

size_t muon_route_count_messages(const muon_route *route, size_t wave, muon_route_list list)
{
    if (!exists(route, wave, list)) return 0;
    const size_t *first = route->lists[list].message_first;
    return first[wave + 1] - first[wave];
}

muon_status muon_route_get_message(const muon_route *route, size_t wave, muon_route_list list,
                                   size_t index, muon_route_message *message, size_t message_size)
{
    TRY(check_list(route, list));
    const route_list *l = &route->lists[list];
    size_t at;
    TRY(find(&at, route, wave, l->message_first, index, "message"));
    return muon__struct_store(message, message_size, &l->messages[at], sizeof *l->messages,
                              "muon_route_message");
}

size_t muon_route_count_pieces(const muon_route *route, size_t wave, muon_route_list list)
{
    if (!exists(route, wave, list)) return 0;
    const size_t *first = route->lists[list].piece_first;
    return first[wave + 1] - first[wave];
}

muon_status muon_route_get_piece(const muon_route *route, size_t wave, muon_route_list list,
                                 size_t index, muon_route_piece *piece, size_t piece_size)
{
    TRY(check_list(route, list));
    const route_list *l = &route->lists[list];
    size_t at;
    TRY(find(&at, route, wave, l->piece_first, index, "piece"));
    return muon__struct_store(piece, piece_size, &l->pieces[at], sizeof *l->pieces,
                              "muon_route_piece");
}
