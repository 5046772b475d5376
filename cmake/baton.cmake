# Rules shared by every target of ours.

add_library(baton_flags INTERFACE)
target_compile_options(baton_flags INTERFACE -Wall -Wextra -Werror
  # g++ 12 reports impossible overlaps inside std::string.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
target_include_directories(baton_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(baton_flags INTERFACE Threads::Threads)
if(BATON_SANITIZE STREQUAL "asan")
  # Without the checks that quadruple the compile time of template-heavy files.
  set(flags -fsanitize=address,undefined -fno-sanitize=vptr,null,alignment,object-size -fno-sanitize-recover=all)
elseif(BATON_SANITIZE STREQUAL "tsan")
  set(flags -fsanitize=thread -Wno-tsan)
endif()
if(flags)
  # The manual of gcc says that sanitizers give -Wmaybe-uninitialized false positives.
  target_compile_options(baton_flags INTERFACE ${flags} $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(baton_flags INTERFACE ${flags})
endif()

# Sanitizers spend most of a build on headers: there six files are compiled as one. Not where their private
# names meet (ALONE).
function(baton_together target alone)
  if(BATON_SANITIZE AND NOT alone)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

# baton_library(NAME SOURCES a.cc … USES folders… [PRIVATE libraries…] [PUBLIC libraries…] [ALONE])
# One folder, one target baton_NAME. USES are the folders it may include.
function(baton_library name)
  cmake_parse_arguments(arg "ALONE" "" "SOURCES;USES;PRIVATE;PUBLIC" ${ARGN})
  add_library(baton_${name} STATIC ${arg_SOURCES})
  baton_together(baton_${name} ${arg_ALONE})
  target_link_libraries(baton_${name} PUBLIC baton_flags ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  foreach(used ${arg_USES})
    target_link_libraries(baton_${name} PUBLIC baton_${used})
  endforeach()
endfunction()

# baton_test(NAME SOURCES a_test.cc … USES folders… [LABELS threaded|real-model…] [LIBRARIES …]
#            [ASAN_FILTER pattern] [TSAN_FILTER pattern] [ALONE])
# All unit tests of a folder in one executable. Label "threaded" runs under TSan too. The filters (as
# --gtest_filter) keep what a sanitizer can't say anything about, and would run for minutes, to the
# release build.
function(baton_test name)
  if(NOT BATON_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "ALONE" "ASAN_FILTER;TSAN_FILTER" "SOURCES;USES;LABELS;LIBRARIES" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  baton_together(${name} ${arg_ALONE})
  # What is tested is optimised, its tests need not be: they compile in two thirds of the time.
  if(BATON_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  else()
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  target_link_libraries(${name} PRIVATE baton_flags GTest::gtest GTest::gtest_main ${arg_LIBRARIES})
  foreach(used ${arg_USES})
    target_link_libraries(${name} PRIVATE baton_${used})
  endforeach()
  target_compile_definitions(${name} PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
  string(TOUPPER "${BATON_SANITIZE}" sanitizer)
  if(sanitizer AND arg_${sanitizer}_FILTER)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "GTEST_FILTER=${arg_${sanitizer}_FILTER}")
  endif()
  if("threaded" IN_LIST arg_LABELS)
    set_property(GLOBAL APPEND PROPERTY BATON_THREADED_TESTS ${name})
  endif()
endfunction()

# baton_bench(NAME SOURCES a_bench.cc … USES folders…): Google Benchmark, also run once as a smoke test.
function(baton_bench name)
  if(NOT BATON_BUILD_TESTS OR BATON_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE baton_flags benchmark::benchmark benchmark::benchmark_main ${arg_LIBRARIES})
  foreach(used ${arg_USES})
    target_link_libraries(${name} PRIVATE baton_${used})
  endforeach()
  add_test(NAME ${name}_smoke COMMAND ${name} --benchmark_min_time=0.001)
  set_tests_properties(${name}_smoke PROPERTIES LABELS bench TIMEOUT 300)
endfunction()

# baton_fuzz(NAME SOURCES x_fuzz.cc USES folders… CORPUS DIR): a file with LLVMFuzzerTestOneInput. With clang
# (-DBATON_FUZZ=ON) a libFuzzer target; in every other build a test that replays the corpus.
function(baton_fuzz name)
  if(NOT BATON_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "CORPUS" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  if(BATON_FUZZ)
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src/testing/fuzz_replay_main.cc)
  endif()
  target_link_libraries(${name} PRIVATE baton_flags ${arg_LIBRARIES})
  foreach(used ${arg_USES})
    target_link_libraries(${name} PRIVATE baton_${used})
  endforeach()
  add_test(NAME ${name}_corpus COMMAND ${name} ${arg_CORPUS})
  set_tests_properties(${name}_corpus PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
