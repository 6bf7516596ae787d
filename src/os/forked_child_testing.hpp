// Forked processes for tests. Code in a child reports by a number, and never returns into the test.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/function_ref.hpp"

namespace bitsnap::os {

// Runs `work` in a forked process and waits. Returns what it returned, or minus the signal that killed it.
[[nodiscard]] int returned_by_child(FunctionRef<int()> work);

// A forked process that runs `work`, reports what it returned, and then lives until it is killed.
class LivingChild {
 public:
  explicit LivingChild(FunctionRef<int()> work);
  ~LivingChild();
  LivingChild(const LivingChild&) = delete;
  LivingChild& operator=(const LivingChild&) = delete;

  [[nodiscard]] pid_t process() const noexcept { return process_; }
  [[nodiscard]] int said() const noexcept { return said_; }  // -1 if it died before
  void kill();                                               // leaves a zombie
  void reap();                                               // after kill()

 private:
  pid_t process_ = 0;
  int said_ = -1;
  bool killed_ = false;
};

[[nodiscard]] std::size_t open_descriptor_count();

// A name that no other test on this machine uses.
[[nodiscard]] std::string unique_name();

}  // namespace bitsnap::os
