#include "gil.hpp"

#include <cxxabi.h>

#include <chrono>
#include <thread>

namespace bitsnap::python {

namespace {

[[noreturn]] void stop_thread() noexcept {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

// Catches the unwinding at its first step, and does not return from there.
template <typename Take>
auto take_or_stop(Take&& take) noexcept {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    stop_thread();
  }
}

PyGILState_STATE ensure() {
  // A thread that Python does not know, such as one of the library's own, needs an interpreter that is whole.
  if (Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr) stop_thread();
  return PyGILState_Ensure();
}

}  // namespace

GilAcquire::GilAcquire() noexcept : state_(take_or_stop([] { return ensure(); })) {}

GilRelease::~GilRelease() {
  take_or_stop([this] { PyEval_RestoreThread(thread_); });
}

}  // namespace bitsnap::python
