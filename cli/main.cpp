#include "cli/program.hpp"

int main(int argc, char** argv) { return bitsnap::cli::run_program(argc, argv, false); }
