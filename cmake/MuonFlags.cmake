# How every file of this project is compiled, as two interface targets. Nothing of it reaches a user
# of the library. Optimization and sanitizers are the presets' business.

add_library(muon_warnings INTERFACE)
target_compile_options(
    muon_warnings
    INTERFACE -Wall
              -Wextra
              -Wpedantic
              -Wshadow
              -Wconversion
              -Wdouble-promotion
              -Wstrict-prototypes
              -Wmissing-prototypes
              -Wundef
              -Wvla
              -Wcast-qual
              -Wwrite-strings
              -Wformat=2
              $<$<BOOL:${MUON_WERROR}>:-Werror>)

# The same bits with every compiler option set: no contraction to fused multiply-add, and never
# -ffast-math. Without math errno, sqrt is one instruction; the result is the same.
add_library(muon_language INTERFACE)
target_compile_features(muon_language INTERFACE c_std_11)
target_compile_options(muon_language INTERFACE -ffp-contract=off -fno-math-errno)
target_compile_definitions(muon_language INTERFACE _POSIX_C_SOURCE=200809L)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
