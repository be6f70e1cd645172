/* The linker sends every allocation of the library and the test through here (--wrap). */
#include "tests/support/testlib.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic int64_t allowed = -1, made;
static _Thread_local int64_t countdown;

void testlib_allow_allocations(int64_t k)
{
    allowed = k;
}

int64_t testlib_allocations(void)
{
    return made;
}

void testlib_fail_allocation(int64_t k)
{
    countdown = k;
}

int64_t testlib_allocations_to_fail(void)
{
    return countdown;
}

static int may_allocate(void)
{
    made++;
    if (countdown > 0 && --countdown == 0) return 0;
    if (allowed < 0) return 1;
    if (allowed == 0) return 0;
    allowed--;
    return 1;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **out, size_t align, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
int __wrap_posix_memalign(void **out, size_t align, size_t size);

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return may_allocate() ? __real_realloc(memory, size) : NULL;
}

int __wrap_posix_memalign(void **out, size_t align, size_t size)
{
    return may_allocate() ? __real_posix_memalign(out, align, size) : ENOMEM;
}
