#define _GNU_SOURCE /* sched_getaffinity */
#include "compute.h"

#include "launch.h"

#include <sched.h>
#include <unistd.h>

/* What threads = 0 means to the library, as a number that can be reported; ranks that share processors
 * share them evenly. */
static int available_threads(void)
{
    cpu_set_t set;
    long count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                             : sysconf(_SC_NPROCESSORS_ONLN);
    count /= launch_sharing();
    if (count < 1) return 1;
    return count < COMPUTE_MOST_THREADS ? (int)count : COMPUTE_MOST_THREADS;
}

int compute_resolve(compute *settings)
{
    /* The library knows the names; the smallest object there is asks it. */
    muon_ortho *probe = NULL;
    if (settings->backend &&
        muon_ortho_create(&probe, 1, 1, 1, NULL, 1, settings->backend) != MUON_OK)
        return cli_misuse("--backend: %s", muon_last_error());
    muon_ortho_destroy(probe);
    if (settings->threads == 0) settings->threads = available_threads();
    return CLI_DONE;
}
