# FindBLIS - the BLIS library: BLIS_FOUND, BLIS_VERSION, BLIS_THREADING (what it was built with: none,
# OpenMP or pthreads), BLIS_KERNELS (with a comma after each), and the target BLIS::BLIS. Debian's serial BLIS is preferred where it is there.
# Look elsewhere with -DCMAKE_PREFIX_PATH=... or -DBLIS_INCLUDE_DIR=... -DBLIS_LIBRARY=...

find_path(BLIS_INCLUDE_DIR blis.h PATH_SUFFIXES blis-serial blis)
# A Python package carries its BLIS with it.
if(SKBUILD)
    set(blis_names libblis.a blis)
else()
    set(blis_names blis)
endif()
find_library(BLIS_LIBRARY NAMES ${blis_names} PATH_SUFFIXES blis-serial)
mark_as_advanced(BLIS_INCLUDE_DIR BLIS_LIBRARY)

if(BLIS_INCLUDE_DIR AND BLIS_LIBRARY)
    # The header says which kernel sets were compiled: "haswell,zen3,generic,".
    file(STRINGS "${BLIS_INCLUDE_DIR}/blis.h" kernels REGEX "^#define BLIS_CONFIG_[A-Z0-9_]+$")
    set(BLIS_KERNELS "")
    foreach(line IN LISTS kernels)
        string(REGEX REPLACE "^#define BLIS_CONFIG_" "" kernel "${line}")
        string(TOLOWER "${kernel}," kernel)
        string(APPEND BLIS_KERNELS "${kernel}")
    endforeach()
    # The header of a BLIS that was built with OpenMP includes omp.h but uses nothing of it. clang
    # has that header only with its own OpenMP runtime, which is of no use here: an empty one will do.
    set(BLIS_INCLUDE_DIRS ${BLIS_INCLUDE_DIR})
    include(CheckIncludeFile)
    check_include_file(omp.h BLIS_HAVE_OMP_H)
    if(NOT BLIS_HAVE_OMP_H)
        file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/omp/omp.h "")
        list(APPEND BLIS_INCLUDE_DIRS ${CMAKE_CURRENT_BINARY_DIR}/omp)
    endif()

    # Header and library must belong together, and only since 1.0 does the header say its version. Where
    # nothing can be run, the version stays unknown.
    set(blis_pair "${BLIS_INCLUDE_DIR} ${BLIS_LIBRARY}")
    if(NOT CMAKE_CROSSCOMPILING AND NOT blis_pair STREQUAL "${BLIS_PAIR}")
        try_run(
            blis_ran blis_compiled
            SOURCE_FROM_CONTENT
                version.c
                [=[
#include <blis.h>
#include <stdio.h>
#include <string.h>
#ifndef BLIS_VERSION_STRING
#define BLIS_VERSION_STRING ""
#endif
int main(void)
{
    const char *header = BLIS_VERSION_STRING, *library = bli_info_get_version_str();
    if (header[0] ? strcmp(header, library) != 0 : library[0] != '0') return 1;
    printf("%s;%s", library,
           bli_info_get_enable_openmp() ? "OpenMP" : bli_info_get_enable_pthreads() ? "pthreads" : "none");
    return 0;
}
]=]
            CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${BLIS_INCLUDE_DIRS}"
            LINK_LIBRARIES ${BLIS_LIBRARY} m
            RUN_OUTPUT_VARIABLE blis_said)
        if(NOT blis_compiled OR NOT blis_ran EQUAL 0)
            message(WARNING "BLIS: ${BLIS_INCLUDE_DIR}/blis.h and ${BLIS_LIBRARY} do not belong together")
            set(BLIS_LIBRARY BLIS_LIBRARY-NOTFOUND)
        else()
            list(GET blis_said 0 blis_version)
            list(GET blis_said 1 blis_threading)
            set(BLIS_VERSION ${blis_version} CACHE INTERNAL "")
            set(BLIS_THREADING ${blis_threading} CACHE INTERNAL "")
            set(BLIS_PAIR ${blis_pair} CACHE INTERNAL "what these two are about")
        endif()
    endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
    BLIS
    REQUIRED_VARS BLIS_LIBRARY BLIS_INCLUDE_DIR
    VERSION_VAR BLIS_VERSION)

if(BLIS_FOUND AND NOT TARGET BLIS::BLIS)
    add_library(BLIS::BLIS UNKNOWN IMPORTED)
    set_target_properties(BLIS::BLIS PROPERTIES IMPORTED_LOCATION ${BLIS_LIBRARY})
    target_include_directories(BLIS::BLIS INTERFACE ${BLIS_INCLUDE_DIRS})
endif()
