# FindBLIS - the BLIS library: BLIS_FOUND, and the target BLIS::BLIS.
# Look elsewhere with -DCMAKE_PREFIX_PATH=... or -DBLIS_INCLUDE_DIR=... -DBLIS_LIBRARY=...

find_path(BLIS_INCLUDE_DIR blis.h PATH_SUFFIXES blis)
find_library(BLIS_LIBRARY blis)
mark_as_advanced(BLIS_INCLUDE_DIR BLIS_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(BLIS REQUIRED_VARS BLIS_LIBRARY BLIS_INCLUDE_DIR)

if(BLIS_FOUND AND NOT TARGET BLIS::BLIS)
    add_library(BLIS::BLIS UNKNOWN IMPORTED)
    set_target_properties(BLIS::BLIS PROPERTIES IMPORTED_LOCATION ${BLIS_LIBRARY})
    target_include_directories(BLIS::BLIS INTERFACE ${BLIS_INCLUDE_DIR})

    # The header of a BLIS that was built with OpenMP includes omp.h but uses nothing of it. clang
    # has that header only with its own OpenMP runtime, which is of no use here: an empty one will do.
    include(CheckIncludeFile)
    check_include_file(omp.h BLIS_HAVE_OMP_H)
    if(NOT BLIS_HAVE_OMP_H)
        file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/omp/omp.h "")
        target_include_directories(BLIS::BLIS INTERFACE ${CMAKE_CURRENT_BINARY_DIR}/omp)
    endif()
endif()
