// Taking Python's global interpreter lock, and giving it up: for all of the extension, in place of nanobind's classes.
//
// A thread that asks for the lock when the interpreter ends, such as a daemon thread that saves, never gets it. CPython
// before 3.14 ends such a thread by unwinding its stack, which aborts the process at the first noexcept function. Here
// the thread stops instead, as with CPython 3.14, until the process ends.
#pragma once

#include <nanobind/nanobind.h>

namespace bitsnap::python {

// Holds the lock while it exists.
class GilAcquire {
 public:
  GilAcquire() noexcept;
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;
  ~GilAcquire() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

// Gives the lock up while it exists. The thread must hold it.
class GilRelease {
 public:
  GilRelease() noexcept : thread_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease();

 private:
  PyThreadState* thread_;
};

}  // namespace bitsnap::python
