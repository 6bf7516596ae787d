// Turns exceptions of the standard library and of callbacks into errors, at the boundary of a layer or of the library.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <bitsnap/error.hpp>

#include "base/try.hpp"

namespace bitsnap {

// Calls `body`, which returns a Result. std::bad_alloc and std::length_error become resource_exhausted, other
// exceptions internal. `what` names the operation in the message.
template <typename Body>
[[nodiscard]] std::invoke_result_t<Body> no_throw(const char* what, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::resource_exhausted, std::string(what) + ": out of memory");
  } catch (const std::length_error&) {
    return fail(ErrorKind::resource_exhausted, std::string(what) + ": the size exceeds the memory");
  } catch (const std::exception& error) {
    return fail(ErrorKind::internal, std::string(what) + ": " + error.what());
  } catch (...) {
    return fail(ErrorKind::internal, std::string(what) + ": an exception of unknown type");
  }
}

}  // namespace bitsnap
