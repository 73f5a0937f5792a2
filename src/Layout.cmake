# What programs use comes first in the library (layout.txt, docs/decisions/0044-layout.md).
#
# hak_layout(TARGET OPTIONS…): the linker's own script for these options, with layout.txt's names in
# front of its patterns, becomes the target's script. A linker that shows no script, or one that
# looks otherwise, orders as it always does. Needs -ffunction-sections and -fdata-sections.
function(hak_layout target)
  separate_arguments(flags NATIVE_COMMAND "${CMAKE_C_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}")
  if(CMAKE_C_COMPILER_TARGET)
    list(APPEND flags --target=${CMAKE_C_COMPILER_TARGET})
  endif()
  if(CMAKE_SYSROOT)
    list(APPEND flags --sysroot=${CMAKE_SYSROOT})
  endif()
  execute_process(
    COMMAND ${CMAKE_C_COMPILER} ${flags} -shared -nostdlib ${ARGN} -Wl,--verbose -x c /dev/null -o /dev/null
    OUTPUT_VARIABLE script ERROR_QUIET)
  if(NOT script MATCHES "=====\n(.*)\n=====")
    return()
  endif()
  set(script "${CMAKE_MATCH_1}")
  set(list ${CMAKE_CURRENT_SOURCE_DIR}/layout.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  file(STRINGS ${list} names REGEX "^[^#]")
  # What is linked in to register fork handlers and to end has no sections of its own.
  set(code "    *libc_nonshared.a:*(.text) *crtbegin*.o(.text)\n")
  set(data "    *crtbegin*.o(.bss)\n")
  set(constants "")
  foreach(name IN LISTS names)
    string(REGEX REPLACE "\\.hot$" "" plain "${name}")
    string(APPEND code "    *(.text.${plain} .text.${plain}.* .text.hot.${plain} .text.startup.${plain} .text.exit.${plain}")
    if(plain STREQUAL name)
      string(APPEND code " .text.unlikely.${plain}")
    endif()
    string(APPEND code ")\n")
    string(APPEND data "    *(.bss.${plain})\n") # a function has no .bss, a variable no .text
    string(APPEND constants "    *(.rodata.${plain} .rodata.${plain}.str*)\n") # and a function's texts
  endforeach()
  string(REGEX REPLACE "(\n  \\.text  *:[^{]*{\n)" "\\1${code}" ordered "${script}")
  string(REGEX REPLACE "(\n   *\\*\\(\\.bss )" "\n${data}\\1" ordered "${ordered}")
  string(REGEX REPLACE "(\n  \\.text  *:[^{]*{)" "\n  .fini : { KEEP(*(SORT_NONE(.fini))) }\\1" ordered "${ordered}")
  if("-Wl,-z,noseparate-code" IN_LIST ARGN)
    string(REGEX REPLACE "(\n  \\.init  *:)" "\n  .rodata.first : {\n${constants}  }\\1" ordered "${ordered}")
  endif()
  if(ordered STREQUAL script)
    return()
  endif()
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${target}.ld)
  file(GENERATE OUTPUT ${file} CONTENT "${ordered}")
  target_link_options(${target} PRIVATE LINKER:-T,${file})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${file})
  set_target_properties(${target} PROPERTIES HAK_ORDERED TRUE)
endfunction()
