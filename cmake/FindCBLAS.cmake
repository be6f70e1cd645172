# FindCBLAS - a library with CBLAS that will be loaded at run time: CBLAS_FOUND, MUON_CBLAS_LIBRARY. OpenBLAS,
# unless -DMUON_CBLAS_LIBRARY=... names another one, by a path or as the dynamic linker finds it. Debian's
# serial OpenBLAS is not taken: several threads cannot call it at the same time.

set(named "${MUON_CBLAS_LIBRARY}")
find_library(
    MUON_CBLAS_LIBRARY
    NAMES libopenblas.so.0 openblas
    PATH_SUFFIXES openblas-pthread openblas-openmp
    DOC "The library of the backend cblas")
mark_as_advanced(MUON_CBLAS_LIBRARY)
if(NOT named AND MUON_CBLAS_LIBRARY)
    file(REAL_PATH "${MUON_CBLAS_LIBRARY}" file)
    if(file MATCHES "/openblas-serial/")
        set_property(CACHE MUON_CBLAS_LIBRARY PROPERTY VALUE MUON_CBLAS_LIBRARY-NOTFOUND)
    endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CBLAS REQUIRED_VARS MUON_CBLAS_LIBRARY)
