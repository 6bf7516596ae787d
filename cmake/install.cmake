# Installs libbitsnap, its headers and the command; `find_package(bitsnap)` gives bitsnap::bitsnap, and pkg-config
# bitsnap. Both can be moved to another prefix as a whole.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bitsnap)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/bitsnap DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
        PATTERN "*.hpp")
install(TARGETS bitsnap EXPORT bitsnap_targets)
install(EXPORT bitsnap_targets DESTINATION ${config_dir} NAMESPACE bitsnap:: FILE bitsnapTargets.cmake)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/bitsnapConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/bitsnapConfig.cmake INSTALL_DESTINATION ${config_dir})
# 0.x promises nothing from one minor version to the next.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bitsnapConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bitsnapConfig.cmake ${PROJECT_BINARY_DIR}/bitsnapConfigVersion.cmake
        DESTINATION ${config_dir})

# The .pc file finds its prefix from where it lies itself, unless the directories were given as absolute paths.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up /prefix/${pkgconfig_dir} /prefix)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
set(pc_requires "libzstd, fmt")
if(NOT BITSNAP_PLAIN_THREADS)
  string(APPEND pc_requires ", tbb")
endif()
set(pc_libs ${CMAKE_THREAD_LIBS_INIT})
configure_file(${PROJECT_SOURCE_DIR}/cmake/bitsnap.pc.in ${PROJECT_BINARY_DIR}/bitsnap.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bitsnap.pc DESTINATION ${pkgconfig_dir})
