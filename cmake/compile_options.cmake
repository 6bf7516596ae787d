# bitsnap_options: how every file of this project is compiled, with the public headers only. Never exported.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Type of build" FORCE)
  endif()
endif()

if(BITSNAP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(BITSNAP_CCACHE_PROGRAM ccache)
  mark_as_advanced(BITSNAP_CCACHE_PROGRAM)
  if(BITSNAP_CCACHE_PROGRAM)
    # Without the build folder in the key, build trees with equal flags share their objects. They lie at one depth, so
    # that relative paths in the debug information stay right.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                                    CCACHE_ABSSTDERR=1 ${BITSNAP_CCACHE_PROGRAM})
  endif()
endif()

add_library(bitsnap_options INTERFACE)
target_include_directories(bitsnap_options INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(bitsnap_options INTERFACE tl::expected)
# The same bytes on every machine: no contraction of floating-point expressions.
target_compile_options(bitsnap_options INTERFACE -ffp-contract=off)
# So that a linker can leave out what a wheel does not call. In all builds, so that they share their objects.
target_compile_options(bitsnap_options INTERFACE -ffunction-sections -fdata-sections)

target_compile_options(
  bitsnap_options
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Woverloaded-virtual
            -Wold-style-cast -Wcast-qual -Wcast-align -Wimplicit-fallthrough -Wundef -Wextra-semi -Wunused
            -Wnull-dereference -Wdouble-promotion -Wformat=2)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(bitsnap_options INTERFACE -Wduplicated-cond -Wlogical-op)
  # g++ 12 at -O3 warns of `"text" + std::to_string(n)` inside its own library (its bug 105651).
  target_compile_options(bitsnap_options INTERFACE -Wno-restrict)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(bitsnap_options INTERFACE -Wunreachable-code -Wrange-loop-analysis -Wcomma)
endif()
if(BITSNAP_WERROR)
  target_compile_options(bitsnap_options INTERFACE -Werror)
endif()

foreach(option SCALAR_ONLY PLAIN_THREADS)
  if(BITSNAP_${option})
    target_compile_definitions(bitsnap_options INTERFACE BITSNAP_${option}=1)
  endif()
endforeach()

if(BITSNAP_SELF_CONTAINED)
  # Unused parts of a static libstdc++ (random_device), and a static libgcc, need the newest C library: the first are
  # left out, and libgcc_s.so comes with every C library.
  target_link_options(bitsnap_options INTERFACE -static-libstdc++ -Wl,--gc-sections)
endif()

# For what may see more than the public headers: the layers and their tests.
add_library(bitsnap_internal_options INTERFACE)
target_link_libraries(bitsnap_internal_options INTERFACE bitsnap_options)
target_include_directories(bitsnap_internal_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})

# For tests. Compiling GoogleTest's macros takes most of the time of a build, and little of it is worth optimising.
add_library(bitsnap_test_options INTERFACE)
separate_arguments(test_flags UNIX_COMMAND "${BITSNAP_TEST_FLAGS}")
target_compile_options(bitsnap_test_options INTERFACE ${test_flags})

# For what fuzzing is to see the branches of.
add_library(bitsnap_fuzz_options INTERFACE)
if(BITSNAP_FUZZ)
  target_compile_options(bitsnap_fuzz_options INTERFACE -fsanitize-coverage=${BITSNAP_FUZZ_COVERAGE})
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "BITSNAP_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}")
  endif()
endif()
if(BITSNAP_SANITIZE)
  add_compile_options(-fsanitize=${BITSNAP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${BITSNAP_SANITIZE})
endif()

# In a batch of sources, system headers are parsed and their templates compiled once, which takes more than half of the
# time of a build without batches. Names that several sources of a target define for themselves clash, so that each is
# defined once, or has a name of its own.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 30)
