# What is built into the programs: files, as they are, and pages of web/.

# muon_embed(TARGET NAME FILE): the bytes of FILE become `const unsigned char NAME[]` in TARGET, and end at
# NAME_end; a zero follows, so that text is also a C string. The assembler takes the file in as it is: as
# numbers for the C compiler a file of 2 MB takes longer than everything else.
function(muon_embed target name file)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
    file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
extern const unsigned char @name@[], @name@_end[];
__asm__(".section .rodata\n"
        ".global @name@\n"
        ".global @name@_end\n"
        "@name@:\n"
        ".incbin \"@file@\"\n"
        "@name@_end:\n"
        ".byte 0\n"
        ".previous\n");
]])
    set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file})
    target_sources(${target} PRIVATE ${source})
endfunction()

# muon_page(TARGET NAME SCRIPT): web/page.html with the style, the charts and SCRIPT inside of it, embedded
# as NAME. Whoever writes the page puts its data where it says @data@.
function(muon_page target name script)
    set(web ${PROJECT_SOURCE_DIR}/web)
    set(page ${CMAKE_CURRENT_BINARY_DIR}/${name}.html)
    add_custom_command(
        OUTPUT ${page}
        COMMAND ${CMAKE_COMMAND} -D web=${web} -D script=${script} -D page=${page} -P
                ${PROJECT_SOURCE_DIR}/cmake/MuonPage.cmake
        DEPENDS ${web}/page.html ${web}/style.css ${web}/chart.js ${web}/${script}
                ${PROJECT_SOURCE_DIR}/cmake/MuonPage.cmake
        COMMENT "Putting ${name} together"
        VERBATIM)
    muon_embed(${target} ${name} ${page})
endfunction()
