# Which programs a shared library serves, as docs/versioning.md promises: the SONAME, the version of the
# symbols and the CMake package all say MUON_ABI.
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(MUON_ABI ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    set(MUON_COMPATIBILITY SameMinorVersion)
else()
    set(MUON_ABI ${PROJECT_VERSION_MAJOR})
    set(MUON_COMPATIBILITY SameMajorVersion)
endif()
configure_file(cmake/libmuon.map.in libmuon.map @ONLY)

# muon_versioned(LIBRARY): the file name, the SONAME and the exported symbols of a shared library.
function(muon_versioned library)
    set(map ${PROJECT_BINARY_DIR}/libmuon.map)
    set_target_properties(${library} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${MUON_ABI}
                                                LINK_DEPENDS ${map})
    target_link_options(${library} PRIVATE LINKER:--version-script=${map})
endfunction()
