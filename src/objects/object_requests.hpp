// Conditional requests whose answer may be lost: what is there then tells whether they were done. The contents must be
// such that no other writer writes the same, or it must not matter which of the two did.
#pragma once

#include <optional>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/object_store.hpp>

#include "base/bytes.hpp"
#include "base/function_ref.hpp"

namespace bitsnap::objects {

// The version of the object that holds the bytes now; nullopt if another object is there. Tries again after errors, for
// some seconds. `may_begin` is asked before each attempt.
[[nodiscard]] Result<std::optional<std::string>> create_object(ObjectStore& store, const std::string& key,
                                                               ConstByteSpan bytes,
                                                               FunctionRef<Result<void>()> may_begin);
// The same, if the object is of this version before.
[[nodiscard]] Result<std::optional<std::string>> replace_object(ObjectStore& store, const std::string& key,
                                                                ConstByteSpan bytes, const std::string& version);

}  // namespace bitsnap::objects
