#define _GNU_SOURCE /* sched_getaffinity */
#include "cli/core/compute.h"

#include "cli/core/launch.h"

#include <sched.h>
#include <stdio.h>
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
    muon_backend_info info;
    if (settings->backend && muon_backend_get(settings->backend, &info, sizeof info) != MUON_OK)
        return cli_misuse("--backend: %s", muon_last_error());
    if (settings->threads == 0) settings->threads = available_threads();
    return CLI_DONE;
}

int compute_ask(const char *backend, muon_backend_info *info)
{
    if (muon_backend_get(backend, info, sizeof *info) != MUON_OK) return cli_fail_library();
    if (info->warning[0]) cli_note("%s", info->warning);
    return CLI_DONE;
}

void compute_print(const muon_backend_info *info)
{
    printf("cpu      %s\n", info->cpu[0] ? info->cpu : "unknown");
    printf("backend  %s", info->name);
    if (info->version[0]) printf(" %s", info->version);
    if (info->kernels[0]) printf(", kernels %s", info->kernels);
    if (info->library[0]) printf(", %s", info->library);
    printf("\n");
}
