/* Runs a shell command between two system calls of the program that is tested: $AT_SYNC before its first syncfs(),
   $AFTER_RENAME after it first gives a checkpoint that it deletes its hidden name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void run_once(const char* name) {
  const char* command = getenv(name);
  if (command == NULL) return;
  char* copy = strdup(command);
  unsetenv(name);
  unsetenv("LD_PRELOAD");
  if (system(copy) != 0) abort();
  free(copy);
}

int syncfs(int descriptor) {
  run_once("AT_SYNC");
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "syncfs");
  return real(descriptor);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  int (*real)(int, const char*, int, const char*, unsigned) =
      (int (*)(int, const char*, int, const char*, unsigned))dlsym(RTLD_NEXT, "renameat2");
  int result = real(from_directory, from, to_directory, to, flags);
  if (strstr(to, ".deleting") != NULL) run_once("AFTER_RENAME");
  return result;
}
