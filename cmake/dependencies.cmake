# The libraries bitsnap uses, all of them packages of the system. Their headers are SYSTEM: warnings are for our code.
include_guard(GLOBAL)

if(BITSNAP_SELF_CONTAINED)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)  # of zstd and lz4
  set(BITSNAP_FMT fmt::fmt-header-only)  # distributions have no static library of it
else()
  set(BITSNAP_FMT fmt::fmt)
endif()

find_package(Threads REQUIRED)
find_package(tl-expected REQUIRED)
if(NOT BITSNAP_KERNELS_ONLY)
  find_package(PkgConfig REQUIRED)
  find_package(fmt REQUIRED)
  pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd>=1.4.8)
endif()

if(BITSNAP_PLAIN_THREADS)
  set(BITSNAP_THREAD_LIBRARIES Threads::Threads)
else()
  find_package(TBB REQUIRED COMPONENTS tbb)
  set(BITSNAP_THREAD_LIBRARIES TBB::tbb Threads::Threads)
endif()

# Header-only and without a CMake package.
find_path(BITSNAP_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
mark_as_advanced(BITSNAP_XXHASH_INCLUDE_DIR)
add_library(bitsnap_xxhash INTERFACE)
add_library(xxHash::header ALIAS bitsnap_xxhash)
target_include_directories(bitsnap_xxhash SYSTEM INTERFACE ${BITSNAP_XXHASH_INCLUDE_DIR})

# What libbitsnap itself links; its public headers need tl::expected besides.
set(BITSNAP_LINK_LIBRARIES ${BITSNAP_THREAD_LIBRARIES} PkgConfig::zstd ${BITSNAP_FMT})

if(BITSNAP_CLI AND NOT BITSNAP_KERNELS_ONLY)
  find_package(CLI11 2.1 REQUIRED)
endif()
if((BITSNAP_CLI OR BITSNAP_TESTS) AND NOT BITSNAP_KERNELS_ONLY)
  find_package(nlohmann_json 3.10 REQUIRED)  # the library itself has its own reader and writer
endif()
if((BITSNAP_CLI OR BITSNAP_BENCHMARKS) AND NOT BITSNAP_KERNELS_ONLY)
  pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)
endif()
if(BITSNAP_TESTS AND BITSNAP_KERNELS_ONLY)
  # Libraries of the system are for another machine; GoogleTest comes with its sources, too.
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  add_library(bitsnap_test_libraries INTERFACE)
  target_link_libraries(bitsnap_test_libraries INTERFACE GTest::gmock_main GTest::gmock GTest::gtest)
elseif(BITSNAP_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
  add_library(bitsnap_test_libraries INTERFACE)
  target_link_libraries(bitsnap_test_libraries INTERFACE GTest::gmock_main GTest::gmock GTest::gtest rapidcheck)
endif()
if(BITSNAP_BENCHMARKS)
  find_package(BZip2 REQUIRED)
  find_package(benchmark REQUIRED)
endif()
