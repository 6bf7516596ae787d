# Installs the build tree BUILD_DIR into WORK_DIR, builds the outside program against it by find_package and by
# pkg-config, and runs both with the installed command as the agent. Any step that fails fails the script.
foreach(variable BUILD_DIR WORK_DIR SOURCE_DIR COMPILER GENERATOR VERSION SHARED)
  if(NOT DEFINED ${variable})
    message(FATAL_ERROR "${variable} is not given")
  endif()
endforeach()

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)

function(step)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\n${output}\nfailed: ${result}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(check_run name program)
  file(MAKE_DIRECTORY ${WORK_DIR}/${name}.saved)
  step(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${libdir} ${program} ${WORK_DIR}/${name}.saved ${agent_program})
  if(NOT output MATCHES "^bitsnap ${VERSION}, ")
    message(FATAL_ERROR "${program} printed: ${output}")
  endif()
endfunction()

# Installed somewhere else than it was configured for, and moved afterwards: nothing may hold an absolute path.
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first)
file(RENAME ${WORK_DIR}/first ${prefix})
file(GLOB_RECURSE pc ${prefix}/*/bitsnap.pc)
cmake_path(GET pc PARENT_PATH pc_dir)
cmake_path(GET pc_dir PARENT_PATH libdir)
set(agent_program ${prefix}/bin/bitsnap)

step(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/by_cmake -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
     -DCMAKE_PREFIX_PATH=${prefix} -DBITSNAP_EXPECTED_VERSION=${VERSION})
step(${CMAKE_COMMAND} --build ${WORK_DIR}/by_cmake)
check_run(by_cmake ${WORK_DIR}/by_cmake/consumer)

set(ENV{PKG_CONFIG_PATH} ${pc_dir})
if(SHARED)
  set(static)
else()
  set(static --static)
endif()
step(pkg-config ${static} --cflags --libs bitsnap)
string(STRIP "${output}" flags)
separate_arguments(flags UNIX_COMMAND "${flags}")
step(${COMPILER} -std=c++20 ${SOURCE_DIR}/consumer.cpp -o ${WORK_DIR}/by_pkg_config ${flags})
check_run(by_pkg_config ${WORK_DIR}/by_pkg_config)
message(STATUS "the outside program builds and runs both ways")
