// The command as a function. The program `bitsnap` calls it, and so does the Python package, which has clients of
// object stores.
#pragma once

namespace bitsnap::cli {

// Runs the command line, and returns the exit status. Sets the signal handlers and the standard streams of the process.
// Without clients of object stores (connect_object_stores()), a command with the address of a run there becomes the
// program bitsnap-remote. Called once in a process.
[[nodiscard]] int run_program(int argc, const char* const* argv, bool has_object_stores);

}  // namespace bitsnap::cli
