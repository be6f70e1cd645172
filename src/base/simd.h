/* simd.h - one plain loop, compiled for several instruction sets.
 *
 * A function marked MUON__SIMD is compiled for AVX2 machines and for the baseline, and the loader
 * picks one. Its bits are the same in both: products and sums are never fused (-ffp-contract=off),
 * and no sum is reordered. Sanitizers run before such a choice can be made, so they get the baseline. */
#ifndef BASE_SIMD_H
#define BASE_SIMD_H

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) &&   \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MUON__SIMD __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define MUON__SIMD
#endif

#endif
