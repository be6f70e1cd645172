# What libmuon stands on. muon_dependencies is for building it; MUON_PRIVATE_LIBS says the same in
# words that mean something on the machine of whoever links the installed libmuon.a.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
if(MUON_TOOLS)
    find_package(PkgConfig REQUIRED)
    pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
endif()

# muon_find(OPTION PACKAGE argument...): looks for a package as the option of that name says; sets
# MUON_HAVE_PACKAGE.
macro(muon_find option package)
    if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "${option} is '${${option}}', must be AUTO, ON or OFF")
    endif()
    set(MUON_HAVE_${package} OFF)
    if(${option} STREQUAL "ON")
        find_package(${package} REQUIRED ${ARGN})
    elseif(${option} STREQUAL "AUTO")
        find_package(${package} QUIET ${ARGN})
    endif()
    if(NOT ${option} STREQUAL "OFF" AND ${package}_FOUND)
        set(MUON_HAVE_${package} ON)
    endif()
endmacro()
muon_find(MUON_BLIS BLIS)
muon_find(MUON_CBLAS CBLAS)
# By its compiler driver, mpicc, unless MPI_C_COMPILER names another one.
muon_find(MUON_MPI MPI COMPONENTS C)

add_library(muon_dependencies INTERFACE)
target_link_libraries(muon_dependencies INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})
set(MUON_PRIVATE_LIBS m ${CMAKE_DL_LIBS})
if(MUON_HAVE_CBLAS) # loaded when it is asked for, never linked
    target_compile_definitions(muon_dependencies INTERFACE MUON_HAVE_CBLAS=1)
endif()
if(MUON_HAVE_BLIS)
    target_link_libraries(muon_dependencies INTERFACE BLIS::BLIS)
    target_compile_definitions(muon_dependencies INTERFACE MUON_HAVE_BLIS=1)
    # A library the linker finds by itself is named, so that the package can move to another machine.
    cmake_path(GET BLIS_LIBRARY PARENT_PATH blis_dir)
    if(blis_dir IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        list(PREPEND MUON_PRIVATE_LIBS blis)
    else()
        list(PREPEND MUON_PRIVATE_LIBS ${BLIS_LIBRARY})
    endif()
endif()
