# data/model-shapes.json as an array in muonctl, so that it is found wherever muonctl is. Included
# where muonctl is defined; run as a script (-P) at build time, it turns INPUT into OUTPUT.
if(CMAKE_SCRIPT_MODE_FILE)
    file(READ ${INPUT} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n"
                         bytes "${bytes}")
    file(WRITE ${OUTPUT} "#include \"plan_models.h\"\n\n"
                         "const unsigned char plan_models_data[] = {\n${bytes}};\n"
                         "const size_t plan_models_data_size = sizeof plan_models_data;\n")
    return()
endif()

set(plan_shapes ${PROJECT_SOURCE_DIR}/data/model-shapes.json)
set(plan_data ${CMAKE_CURRENT_BINARY_DIR}/plan_data.c)
add_custom_command(
    OUTPUT ${plan_data}
    COMMAND ${CMAKE_COMMAND} -D INPUT=${plan_shapes} -D OUTPUT=${plan_data} -P
            ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS ${plan_shapes} ${CMAKE_CURRENT_LIST_FILE}
    COMMENT "Embedding data/model-shapes.json"
    VERBATIM)
target_sources(muonctl PRIVATE ${plan_data})
target_include_directories(muonctl PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
