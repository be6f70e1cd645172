/* mode.h - the floating-point mode and the locale of a thread: the library's inside, the host's
 * outside.
 *
 * A host may flush subnormals to zero, round upwards, trap on a NaN, or write commas in its
 * numbers. What the library computes, reads and prints must not depend on that, and the host must
 * find everything as it was, its exception flags too. So a public function that computes with
 * floats, or reads or prints them, begins with OWN_MODE: round to nearest, subnormals kept, nothing
 * trapped, the locale "C", until it returns, on any path. The caller's functions, including those
 * of a transport, run IN_HOST_MODE: in the caller's mode, and if they change it, it stays changed.
 *
 *     muon_status muon_step(...)
 *     {
 *         OWN_MODE;
 *         ...
 *         IN_HOST_MODE(code = config->orthogonalize(...));
 *
 * These do:
 *     muon.c       muon_create, muon_step, muon_step_start (in its thread), muon_grad_norm
 *     step/        muon_opt_check_replicas, muon_offload, muon_opt_set_group, muon_opt_set_lr,
 *                  muon_opt_set_clip_norm, muon_opt_set_skip_norm, muon_opt_set_qk_clip
 *     save/        muon_save, muon_save_start, muon_save_finish, muon_load
 *     plan/        muon_plan_create, muon_plan_get_matrix, muon_plan_get_cost, muon_plan_get_rank,
 *                  muon_plan_get_wave, muon_plan_get_traffic, muon_plan_predict,
 *                  muon_plan_predict_scheme, muon_plan_print, muon_plan_get_qk_scales,
 *                  muon_route_create
 *     ns/          muon_ortho_create, muon_ortho_run, muon_ortho_get_flops,
 *                  muon_group_get_schedule
 *     rule/        muon_group_set, muon_group_get, muon_group_set_preset
 *     la/          muon_backend_get
 *     io/          muon_st_read_f32
 * The others only copy, count and compare integers. A thread inherits the mode of the one that
 * starts it, so the library's threads have the library's; the pool, which has other users, sets it
 * itself. */
#ifndef BASE_MODE_H
#define BASE_MODE_H

#include <fenv.h>
#include <stdint.h>

#if defined(__x86_64__)
/* Much faster than fenv.h, which also reads and writes the x87 unit's other registers: a step goes
 * to the transport and back after every unit of work. Nothing here computes with x87, so its
 * exception flags stay as they are. */
typedef struct float_mode {
    uint32_t mxcsr;
    uint16_t x87_control;
} float_mode;
#else
typedef fenv_t float_mode;
#endif

typedef struct host_mode {
    float_mode floats;
    void *locale; /* locale_t */
    int entered;  /* 0: called from inside, where the mode is ours already */
} host_mode;

#define OWN_MODE                                                                                   \
    host_mode own_mode_ __attribute__((cleanup(muon__mode_leave)));                                \
    muon__mode_enter(&own_mode_)

#define IN_HOST_MODE(call)                                                                         \
    do {                                                                                           \
        host_mode *in_host_mode_ = muon__mode_to_host();                                           \
        call;                                                                                      \
        muon__mode_back(in_host_mode_);                                                            \
    } while (0)

void muon__mode_enter(host_mode *host);
void muon__mode_leave(host_mode *host);
/* A call of the library from between these two is one from outside. Where there is no host, as in
 * the library's threads, they do nothing. */
host_mode *muon__mode_to_host(void);
void muon__mode_back(host_mode *host);

/* For a thread that belongs to the library. */
void muon__mode_set(void);

#endif
