// What a quantizer did to a stream, as JSON in the encoding section. docs/spec/snapshot.md, "Encoding".
#pragma once

#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>

#include "container/json_reader.hpp"

namespace bitsnap::container {

// An object.
void append_quantizer(std::string& to, const QuantizerRecord& record);

// Takes the tokens of such an object, from the one after its begin_object on. Keys it does not know are passed over.
class QuantizerReader {
 public:
  // corrupt for a value that cannot be. True once the object has ended.
  [[nodiscard]] Result<bool> take(JsonToken& token);
  [[nodiscard]] const QuantizerRecord& record() const noexcept { return record_; }

 private:
  Result<void> take_value(const JsonToken& token);
  [[nodiscard]] Result<void> check() const;

  QuantizerRecord record_;
  bool has_name_ = false;
  std::string part_;  // the object within it that is open; empty: none
  std::string key_;
  std::size_t skipped_ = 0;  // arrays and objects that are open within what is passed over
};

}  // namespace bitsnap::container
