// A non-owning reference to a callable: two words, no allocation. Use it for parameters only; it must not outlive the
// object that it refers to.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace bitsnap {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             !std::is_function_v<std::remove_pointer_t<std::remove_cvref_t<F>>> &&
             std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& callable) noexcept  // NOLINT(google-explicit-constructor): a lambda must convert at the call
      : target_{.object = const_cast<void*>(static_cast<const void*>(std::addressof(callable)))},
        // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature says how arguments are passed
        call_([](Target target, Args... args) -> R {
          auto& object = *static_cast<std::add_pointer_t<std::remove_reference_t<F>>>(target.object);
          if constexpr (std::is_void_v<R>) {
            static_cast<void>(std::invoke(object, std::forward<Args>(args)...));
          } else {
            return std::invoke(object, std::forward<Args>(args)...);
          }
        }) {}

  // Never null.
  FunctionRef(R (*function)(Args...)) noexcept  // NOLINT(google-explicit-constructor)
      : target_{.function = function},
        call_([](Target target, Args... args) -> R { return target.function(std::forward<Args>(args)...); }) {}

  R operator()(Args... args) const { return call_(target_, std::forward<Args>(args)...); }

 private:
  union Target {
    void* object;
    R (*function)(Args...);
  };

  Target target_;
  R (*call_)(Target, Args...);
};

}  // namespace bitsnap
