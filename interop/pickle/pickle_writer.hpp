// Writes a pickle of protocol 2, as torch.save does, opcode by opcode. Classes and functions are only named.
//
// The calls follow the stack of the unpickler: a value is pushed, and a container takes what lies above its mark.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace bitsnap::interop {

class PickleWriter {
 public:
  PickleWriter() : text_("\x80\x02") {}

  void none() { text_ += 'N'; }
  void boolean(bool value) { text_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void unsigned_integer(std::uint64_t value);
  void real(double value);
  void string(std::string_view utf8);
  // As _codecs.encode(text, "latin1"): protocol 2 has no bytes.
  void bytes(std::string_view bytes);
  // "torch._utils", "_rebuild_tensor_v2"
  void global(std::string_view module, std::string_view name);

  void empty_tuple() { text_ += ')'; }
  void empty_list() { text_ += ']'; }
  void empty_dict() { text_ += '}'; }
  void mark() { text_ += '('; }
  void tuple() { text_ += 't'; }       // of everything above the mark
  void append_all() { text_ += 'e'; }  // everything above the mark to the list below it
  void set_all() { text_ += 'u'; }     // all keys and values above the mark in the dict, or the object, below it
  void call() { text_ += 'R'; }        // the callable below the tuple of its arguments
  // The result of a function whose arguments `push` pushes.
  template <typename Push>
  void call(std::string_view module, std::string_view name, const Push& push) {
    global(module, name);
    mark();
    push();
    tuple();
    call();
  }
  void make() { text_ += '\x81'; }  // an object of the class below the tuple of its arguments, without __init__
  void build() { text_ += 'b'; }    // gives the object below its state
  void persistent_id() { text_ += 'Q'; }

  // The pickle. Call it once, with one value on the stack.
  [[nodiscard]] std::string finish() {
    text_ += '.';
    return std::move(text_);
  }

 private:
  std::string text_;
};

}  // namespace bitsnap::interop
