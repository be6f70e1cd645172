# The text that `muonctl train` learns from when it is given none: this project's documentation and
# sources, one file after the other. Included where corpus.c is compiled, which takes it in.
#
# Files are in the order of a hash of their names. It is always the same, and mixes the folders, so that
# the last tenth, which validation has, is like the rest.

file(GLOB corpus_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
     ${PROJECT_SOURCE_DIR}/docs/*.md ${PROJECT_SOURCE_DIR}/include/muon/*.h
     ${PROJECT_SOURCE_DIR}/src/*/*.[ch] ${PROJECT_SOURCE_DIR}/mpi/*.[ch]
     ${PROJECT_SOURCE_DIR}/cli/*.[ch] ${PROJECT_SOURCE_DIR}/train/*.[ch])
set(corpus_order)
foreach(file IN LISTS corpus_files)
    string(MD5 key ${file})
    list(APPEND corpus_order "${key} ${file}")
endforeach()
list(SORT corpus_order)
list(TRANSFORM corpus_order REPLACE "^[0-9a-f]+ " "${PROJECT_SOURCE_DIR}/")

set(corpus ${CMAKE_CURRENT_BINARY_DIR}/corpus.txt)
add_custom_command(
    OUTPUT ${corpus}
    COMMAND ${CMAKE_COMMAND} -E cat ${corpus_order} > ${corpus}
    DEPENDS ${corpus_order}
    COMMENT "Collecting the built-in text"
    VERBATIM)
set_source_files_properties(corpus.c PROPERTIES OBJECT_DEPENDS ${corpus} COMPILE_DEFINITIONS
                                                "TRAIN_CORPUS=\"${corpus}\"")
