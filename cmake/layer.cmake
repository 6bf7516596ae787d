# bitsnap_layer(<name> [SPLIT] [PARALLEL] [SHARDS <n>] [DEPENDS <layer>...] [TEST_DEPENDS <layer>...]
#               [LIBRARIES <target>...] [TEST_LIBRARIES <target>...])
#
# Makes the targets of one layer from the files in its folder; what a file is for stands in its name, so that adding one
# needs no edit of the build:
#
#   x.cpp             object library bitsnap_<name>
#   x_encode*.cpp     of a SPLIT layer: bitsnap_<name>_encode, and everything else bitsnap_<name>_decode, so that what
#                     only reads can be linked without anything that writes
#   x_levels.cpp      kernels, compiled once for each instruction-set level of x86-64, or for `scalar` alone elsewhere
#   x_scalar.cpp, x_avx2.cpp, x_avx512.cpp, x_neon.cpp   kernels written for one level, compiled for that level alone
#   x_tbb.cpp         left out with BITSNAP_PLAIN_THREADS
#   x_testing.cpp     object library bitsnap_<name>_testing: linked into the tests of this layer and the higher ones
#   x_test.cpp        all of them one executable <name>_test, which is one ctest entry, or as many as SHARDS says, each
#                     with its share of the tests; those of a PARALLEL layer are run with ThreadSanitizer too
#   x_threads_test.cpp   the same for the executable <name>_threads_test, which is run with ThreadSanitizer too
#   x_benchmark.cpp   all of them one executable <name>_benchmark (BITSNAP_BENCHMARKS)
#   x_fuzz.cpp        the executable x_fuzz; its corpus is fuzz/corpus/x_fuzz/
#
# Tests, benchmarks and fuzz targets link the objects of the layer and of those it depends on, directly or not, and no
# others: a call to a higher layer does not link. TEST_DEPENDS is for them alone: what reads is tested on what lower
# layers write. TEST_LIBRARIES is for the tests alone. DEPENDS and bitsnap_link_layers() take the name of a layer, or
# <name>_encode or <name>_decode of a SPLIT one.
include_guard(GLOBAL)

# The instruction-set levels that kernels are compiled for. Kernels define tables of functions (base/cpu_dispatch.hpp);
# BITSNAP_KERNEL_LEVEL is the name of the table for the level that a file is being compiled for.
set(BITSNAP_KERNEL_LEVELS)
macro(bitsnap_kernel_level level table)
  list(APPEND BITSNAP_KERNEL_LEVELS ${level})
  set(BITSNAP_KERNEL_FLAGS_${level} -DBITSNAP_KERNEL_LEVEL=${table} ${ARGN})
endmacro()
bitsnap_kernel_level(scalar kScalar)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND NOT BITSNAP_SCALAR_ONLY)
  # Compilers do not fuse operations by themselves (-ffp-contract=off), so only what kernels fuse is fused.
  set(avx2 -mavx2 -mfma -mbmi -mbmi2 -mlzcnt)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vbmi2)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 warns about its own intrinsics (its bug 105593).
    list(APPEND avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  bitsnap_kernel_level(avx2 kAvx2 ${avx2})
  bitsnap_kernel_level(avx512 kAvx512 ${avx512})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$" AND NOT BITSNAP_SCALAR_ONLY)
  bitsnap_kernel_level(neon kNeon)
endif()

# Parts of the layers, in order: the object libraries that exist. A part's property BITSNAP_CLOSURE names itself and all
# parts below it that it depends on.
define_property(GLOBAL PROPERTY BITSNAP_PARTS)

# The parts that a list of layers stands for, with all that those depend on, each once.
function(bitsnap_closure out)
  set(parts)
  foreach(layer IN LISTS ARGN)
    get_property(closure GLOBAL PROPERTY BITSNAP_CLOSURE_${layer})
    list(APPEND parts ${closure})
  endforeach()
  list(REMOVE_DUPLICATES parts)
  set(${out} ${parts} PARENT_SCOPE)
endfunction()

# Links a target to the objects of the layers and of all below them; TESTING adds what those offer to tests.
function(bitsnap_link_layers target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TESTING" "" "")
  bitsnap_closure(parts ${arg_UNPARSED_ARGUMENTS})
  foreach(part IN LISTS parts)
    if(TARGET bitsnap_${part})
      target_link_libraries(${target} PRIVATE bitsnap_${part})
    endif()
    if(arg_TESTING AND TARGET bitsnap_${part}_testing)
      target_link_libraries(${target} PRIVATE bitsnap_${part}_testing)
    endif()
  endforeach()
  target_link_libraries(${target} PRIVATE bitsnap_internal_options)
endfunction()

# The kernels of a part: one object library bitsnap_<part>_<level> for each instruction-set level.
function(bitsnap_kernels part)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  foreach(level IN LISTS BITSNAP_KERNEL_LEVELS)
    set(pattern "_(levels|${level})\\.cpp$")
    if(level STREQUAL "neon")  # every aarch64 has NEON, so that its compilers use it for `scalar`, too
      set(pattern "_neon\\.cpp$")
    endif()
    set(kernels ${arg_SOURCES})
    list(FILTER kernels INCLUDE REGEX "${pattern}")
    if(kernels)
      set(target bitsnap_${part}_${level})
      add_library(${target} OBJECT ${kernels})
      set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
      target_link_libraries(${target} PRIVATE bitsnap_internal_options bitsnap_fuzz_options ${arg_LIBRARIES})
      # Without errno, the compiler vectorizes square roots.
      target_compile_options(${target} PRIVATE ${BITSNAP_KERNEL_FLAGS_${level}} -fno-math-errno)
      if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT BITSNAP_SANITIZE)
        target_compile_options(${target} PRIVATE -O3)  # vectorizes loops that -O2 leaves scalar
      endif()
      set_property(GLOBAL APPEND PROPERTY BITSNAP_PARTS ${part}_${level})
    endif()
  endforeach()
endfunction()

# One part of a layer: an object library, and those of its kernels.
function(bitsnap_part part)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LIBRARIES")
  bitsnap_closure(closure ${arg_DEPENDS})
  bitsnap_kernels(${part} SOURCES ${arg_SOURCES} LIBRARIES ${arg_LIBRARIES})
  list(TRANSFORM BITSNAP_KERNEL_LEVELS PREPEND ${part}_ OUTPUT_VARIABLE kernels)
  list(FILTER arg_SOURCES EXCLUDE REGEX "_(levels|scalar|avx2|avx512|neon)\\.cpp$")
  if(arg_SOURCES)
    add_library(bitsnap_${part} OBJECT ${arg_SOURCES})
    target_link_libraries(bitsnap_${part} PRIVATE bitsnap_internal_options bitsnap_fuzz_options PUBLIC ${arg_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY BITSNAP_PARTS ${part})
  endif()
  set_property(GLOBAL PROPERTY BITSNAP_CLOSURE_${part} ${part} ${kernels} ${closure})
endfunction()

# One gtest executable; its ctest entries share its tests.
function(bitsnap_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PARALLEL;COMPUTING" "SHARDS" "SOURCES;LAYERS;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  bitsnap_link_layers(${name} TESTING ${arg_LAYERS})
  target_link_libraries(${name} PRIVATE bitsnap_test_libraries ${arg_LIBRARIES})
  # Loops over millions of numbers in the code of a test itself are worth optimising as the library is.
  if(NOT arg_COMPUTING)
    target_link_libraries(${name} PRIVATE bitsnap_test_options)
  endif()
  target_compile_definitions(${name} PRIVATE BITSNAP_TESTS_DIR="${PROJECT_SOURCE_DIR}/tests")
  set(labels unit)
  if(arg_PARALLEL)
    list(APPEND labels parallel)
    set_property(GLOBAL APPEND PROPERTY BITSNAP_PARALLEL_TESTS ${name})
  endif()
  set(shards 1)
  if(arg_SHARDS)
    set(shards ${arg_SHARDS})
  endif()
  foreach(shard RANGE 1 ${shards})
    set(entry ${name})
    if(shards GREATER 1)
      set(entry ${name}_${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${entry} COMMAND ${name} --gtest_brief=1)
    set(environment GTEST_TOTAL_SHARDS=${shards} GTEST_SHARD_INDEX=${index})
    # Memory that cannot be had is an error like any other, also where AddressSanitizer refuses it. What it remembers of
    # each allocation takes a sixth of the time of tests that have many, so that it is next to nothing: run a test that
    # finds something again by hand.
    list(APPEND environment ASAN_OPTIONS=allocator_may_return_null=1:malloc_context_size=1:quarantine_size_mb=32)
    # Where there are several they take long: they start first.
    set_tests_properties(${entry} PROPERTIES TIMEOUT 600 COST ${shards} LABELS "${labels}" ENVIRONMENT "${environment}")
  endforeach()
endfunction()

# One fuzz target. Its ctest entry runs the corpus, with libFuzzer or with a driver of our own.
function(bitsnap_fuzz_target source)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LAYERS;LIBRARIES")
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  bitsnap_link_layers(${name} TESTING ${arg_LAYERS})
  target_link_libraries(${name} PRIVATE bitsnap_fuzz_options ${arg_LIBRARIES})
  set(corpus ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  if(BITSNAP_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    if(EXISTS ${corpus})
      add_test(NAME ${name} COMMAND ${name} -runs=0 -rss_limit_mb=2560 ${corpus})
    else()
      add_test(NAME ${name} COMMAND ${name} -runs=1 -rss_limit_mb=2560)
    endif()
  else()
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/fuzz/regression_driver.cpp)
    add_test(NAME ${name} COMMAND ${name} ${corpus})
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS fuzz)
  set_property(GLOBAL APPEND PROPERTY BITSNAP_FUZZ_TARGETS $<TARGET_FILE:${name}>)
endfunction()

function(bitsnap_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SPLIT;PARALLEL;COMPUTING" "SHARDS"
                        "DEPENDS;TEST_DEPENDS;LIBRARIES;TEST_LIBRARIES")
  if(name STREQUAL "interop")
    set(folder ${PROJECT_SOURCE_DIR}/interop)
  else()
    set(folder ${PROJECT_SOURCE_DIR}/src/${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(SORT sources)

  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  set(threads_tests ${tests})
  list(FILTER threads_tests INCLUDE REGEX "_threads_test\\.cpp$")
  list(FILTER tests EXCLUDE REGEX "_threads_test\\.cpp$")
  set(testing ${sources})
  list(FILTER testing INCLUDE REGEX "_testing\\.cpp$")
  set(benchmarks ${sources})
  list(FILTER benchmarks INCLUDE REGEX "_benchmark\\.cpp$")
  set(fuzzers ${sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_(test|testing|benchmark|fuzz)\\.cpp$")
  if(BITSNAP_PLAIN_THREADS)
    list(FILTER sources EXCLUDE REGEX "_tbb\\.cpp$")
  endif()

  if(arg_SPLIT)
    set(encode ${sources})
    list(FILTER encode INCLUDE REGEX "_encode[^/]*\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "_encode[^/]*\\.cpp$")
    # The reading half of a layer stands on the reading halves below it only.
    set(decode_depends)
    foreach(layer IN LISTS arg_DEPENDS)
      get_property(split GLOBAL PROPERTY BITSNAP_SPLIT_${layer})
      if(split)
        list(APPEND decode_depends ${layer}_decode)
      else()
        list(APPEND decode_depends ${layer})
      endif()
    endforeach()
    bitsnap_part(${name}_decode SOURCES ${sources} DEPENDS ${decode_depends} LIBRARIES ${arg_LIBRARIES})
    bitsnap_part(${name}_encode SOURCES ${encode} DEPENDS ${name}_decode ${arg_DEPENDS} LIBRARIES ${arg_LIBRARIES})
    get_property(closure GLOBAL PROPERTY BITSNAP_CLOSURE_${name}_encode)
    set_property(GLOBAL PROPERTY BITSNAP_CLOSURE_${name} ${name} ${closure})
    set_property(GLOBAL PROPERTY BITSNAP_SPLIT_${name} ON)
  else()
    bitsnap_part(${name} SOURCES ${sources} DEPENDS ${arg_DEPENDS} LIBRARIES ${arg_LIBRARIES})
  endif()

  if(BITSNAP_TESTS)
    if(testing)
      add_library(bitsnap_${name}_testing OBJECT ${testing})
      target_link_libraries(bitsnap_${name}_testing PRIVATE bitsnap_internal_options bitsnap_test_libraries ${arg_LIBRARIES})
    endif()
    if(tests)
      set(options)
      if(arg_PARALLEL)
        list(APPEND options PARALLEL)
      endif()
      if(arg_COMPUTING)
        list(APPEND options COMPUTING)
      endif()
      if(arg_SHARDS)
        list(APPEND options SHARDS ${arg_SHARDS})
      endif()
      bitsnap_test(${name}_test ${options} SOURCES ${tests} LAYERS ${name} ${arg_TEST_DEPENDS}
                   LIBRARIES ${arg_LIBRARIES} ${arg_TEST_LIBRARIES})
    endif()
    if(threads_tests)
      bitsnap_test(${name}_threads_test PARALLEL SOURCES ${threads_tests} LAYERS ${name} ${arg_TEST_DEPENDS}
                   LIBRARIES ${arg_LIBRARIES} ${arg_TEST_LIBRARIES})
    endif()
    foreach(source IN LISTS fuzzers)
      bitsnap_fuzz_target(${source} LAYERS ${name} ${arg_TEST_DEPENDS} LIBRARIES ${arg_LIBRARIES})
    endforeach()
  endif()
  if(BITSNAP_BENCHMARKS AND benchmarks)
    add_executable(${name}_benchmark ${benchmarks})
    bitsnap_link_layers(${name}_benchmark ${name} ${arg_TEST_DEPENDS})
    target_link_libraries(${name}_benchmark PRIVATE benchmark::benchmark_main ${arg_LIBRARIES})
  endif()
endfunction()

# What the test scripts ask for: the target parallel_tests, and the file fuzz_targets.txt, a path a line.
function(bitsnap_test_lists)
  get_property(parallel GLOBAL PROPERTY BITSNAP_PARALLEL_TESTS)
  add_custom_target(parallel_tests)
  if(parallel)
    add_dependencies(parallel_tests ${parallel})
  endif()
  get_property(fuzz_targets GLOBAL PROPERTY BITSNAP_FUZZ_TARGETS)
  list(JOIN fuzz_targets "\n" fuzz_targets)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/fuzz_targets.txt CONTENT "${fuzz_targets}\n")
endfunction()

# libbitsnap: the objects of all layers.
function(bitsnap_library)
  get_property(parts GLOBAL PROPERTY BITSNAP_PARTS)
  add_library(bitsnap)
  add_library(bitsnap::bitsnap ALIAS bitsnap)
  foreach(part IN LISTS parts)
    target_sources(bitsnap PRIVATE $<TARGET_OBJECTS:bitsnap_${part}>)
  endforeach()
  target_compile_features(bitsnap PUBLIC cxx_std_20)
  target_include_directories(bitsnap PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(bitsnap PUBLIC tl::expected PRIVATE ${BITSNAP_LINK_LIBRARIES})
  set_target_properties(bitsnap PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
                                           SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endfunction()
