# What `make install` puts where. Nothing installed contains the prefix, so a tree can be moved.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/muon)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY include/muon TYPE INCLUDE FILES_MATCHING PATTERN "*.h" PATTERN muon_mpi.h EXCLUDE)
install(TARGETS muon muon_static EXPORT muonTargets)
if(MUON_TOOLS)
    install(TARGETS muonctl)
    install(FILES docs/muonctl.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# The CMake package: find_package(muon) gives muon::muon (shared) and muon::static.
install(EXPORT muonTargets NAMESPACE muon:: DESTINATION ${package_dir})
configure_package_config_file(cmake/muonConfig.cmake.in muonConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(muonConfigVersion.cmake COMPATIBILITY ${MUON_COMPATIBILITY})
install(FILES ${PROJECT_BINARY_DIR}/muonConfig.cmake ${PROJECT_BINARY_DIR}/muonConfigVersion.cmake
        DESTINATION ${package_dir})

# The pkg-config file finds the prefix from its own place.
file(RELATIVE_PATH pc_prefix /${pkgconfig_dir} /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
set(pc_private_libs "")
foreach(library IN LISTS MUON_PRIVATE_LIBS)
    if(library MATCHES "/")
        string(APPEND pc_private_libs "${library} ")
    else()
        string(APPEND pc_private_libs "-l${library} ")
    endif()
endforeach()
string(APPEND pc_private_libs "-pthread")
configure_file(cmake/libmuon.pc.in libmuon.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/libmuon.pc DESTINATION ${pkgconfig_dir})

# libmuon_mpi: find_package(muon COMPONENTS mpi) gives muon::mpi and muon::mpi_static as well.
if(MUON_HAVE_MPI)
    install(FILES include/muon/muon_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/muon)
    install(TARGETS muon_mpi muon_mpi_static EXPORT muonMpiTargets)
    install(EXPORT muonMpiTargets NAMESPACE muon:: DESTINATION ${package_dir})
    configure_file(cmake/libmuon_mpi.pc.in libmuon_mpi.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/libmuon_mpi.pc DESTINATION ${pkgconfig_dir})
endif()
