#define _GNU_SOURCE /* newlocale */
#include "base/mode.h"

#include <locale.h>
#include <pthread.h>
#include <stddef.h>

static locale_t plain; /* the locale "C" */
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

/* What the host had, while this thread is in a function of the library; else NULL. */
static _Thread_local host_mode *inside;

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

#if defined(__x86_64__)

#define MXCSR_DEFAULT 0x1f80u /* as a process starts: nearest, no flushing, all exceptions masked */
#define X87_DEFAULT   0x037fu

static void get_floats(float_mode *mode)
{
    __asm__ volatile("stmxcsr %0" : "=m"(mode->mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(mode->x87_control));
}

static void set_floats(const float_mode *mode)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(mode->mxcsr) : "memory");
    __asm__ volatile("fldcw %0" : : "m"(mode->x87_control) : "memory");
}

static void set_default_floats(void)
{
    set_floats(&(float_mode){MXCSR_DEFAULT, X87_DEFAULT});
}

#else

static void get_floats(float_mode *mode)
{
    fegetenv(mode);
}

static void set_floats(const float_mode *mode)
{
    fesetenv(mode);
}

static void set_default_floats(void)
{
    fesetenv(FE_DFL_ENV);
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory"); /* flushing off, too */
#endif
}

#endif

void muon__mode_set(void)
{
    pthread_once(&plain_once, make_plain);
    set_default_floats();
    if (plain) uselocale(plain);
}

void muon__mode_enter(host_mode *host)
{
    host->entered = inside == NULL;
    if (!host->entered) return;
    pthread_once(&plain_once, make_plain);
    host->locale = uselocale(plain);
    inside = host;
    get_floats(&host->floats);
    set_default_floats();
}

void muon__mode_leave(host_mode *host)
{
    if (!host->entered) return;
    set_floats(&host->floats);
    inside = NULL;
    uselocale(host->locale);
}

host_mode *muon__mode_to_host(void)
{
    host_mode *host = inside;
    if (host) muon__mode_leave(host);
    return host;
}

void muon__mode_back(host_mode *host)
{
    if (host) muon__mode_enter(host);
}
