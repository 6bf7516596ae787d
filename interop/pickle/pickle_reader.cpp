// The pickle machine: one function per group of opcodes, each in constant time apart from the values that it moves.
#include "interop/pickle/pickle_reader.hpp"

#include <array>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "interop/pickle/pickle_stack.hpp"
#include "interop/pickle/pickle_text.hpp"

namespace bitsnap::interop {
namespace {

class PickleMachine {
 public:
  PickleMachine(std::string_view text, const DecodeLimits& limits) : text_(text), stack_(text.size(), limits) {}

  Result<PickleGraph> run();

 private:
  // Each returns false if the opcode is not of its group.
  Result<bool> step(char opcode);
  Result<bool> push_constant(char opcode);
  Result<bool> push_number(char opcode);
  Result<bool> push_line(char opcode);
  Result<bool> push_sized(char opcode);
  Result<bool> build_container(char opcode);
  Result<bool> add_items(char opcode);
  Result<bool> use_memo(char opcode);
  Result<bool> make_object(char opcode);
  Result<bool> make_by_name(char opcode);
  Result<bool> move_on(char opcode);

  Result<bool> push(PickleNode node);
  Result<bool> push_text(PickleKind kind, Result<std::string_view> text);
  Result<bool> push_shared(NodeId& shared, PickleKind kind, std::int64_t value);
  Result<bool> push_small_integer(std::uint16_t value);
  Result<bool> push_long(Result<std::string_view> bytes);
  Result<bool> push_digits(std::string_view digits);
  Result<bool> push_top(std::size_t count);
  Result<NodeId> make_tuple_above_mark(std::size_t skip);
  Result<bool> push_call(NodeId callable, NodeId arguments);
  Result<bool> push_global(NodeId module, NodeId name);
  Result<NodeId> make_global(NodeId module, NodeId name);
  Result<void> add_values(NodeId to, std::span<const NodeId> values, PickleKind plain);
  Result<void> add_pairs(NodeId to, std::span<const NodeId> values);

  PickleText text_;
  PickleStack stack_;
  // Constants are shared, so that a flood of them takes no memory.
  NodeId none_ = kNoNode;
  NodeId true_ = kNoNode;
  NodeId false_ = kNoNode;
  NodeId empty_tuple_ = kNoNode;
  std::vector<NodeId> small_integers_;  // of at most 16 bits, by value
};

Result<bool> PickleMachine::push(PickleNode node) {
  BITSNAP_ASSIGN(const NodeId id, stack_.make(std::move(node)));
  stack_.push(id);
  return true;
}

Result<bool> PickleMachine::push_text(PickleKind kind, Result<std::string_view> text) {
  if (!text) return tl::unexpected(std::move(text).error());
  return push({.kind = kind, .text = *text});
}

// Two's complement, little-endian, of any length.
Result<bool> PickleMachine::push_long(Result<std::string_view> bytes) {
  if (!bytes) return tl::unexpected(std::move(bytes).error());
  if (bytes->size() > sizeof(std::int64_t)) return push_text(PickleKind::big_integer, *bytes);
  const bool is_negative = !bytes->empty() && (static_cast<unsigned char>(bytes->back()) & 0x80U) != 0;
  std::uint64_t value = is_negative ? ~std::uint64_t{0} : 0;
  for (std::size_t i = bytes->size(); i-- > 0;) value = value << 8U | static_cast<unsigned char>((*bytes)[i]);
  return push({.kind = PickleKind::integer, .integer = static_cast<std::int64_t>(value)});
}

Result<bool> PickleMachine::push_digits(std::string_view digits) {
  if (digits.ends_with('L')) digits.remove_suffix(1);
  if (const auto value = parse_pickle_number<std::int64_t>(digits)) {
    return push({.kind = PickleKind::integer, .integer = *value});
  }
  return push_text(PickleKind::big_integer, digits);
}

Result<bool> PickleMachine::push_shared(NodeId& shared, PickleKind kind, std::int64_t value) {
  if (shared == kNoNode) {
    BITSNAP_ASSIGN(shared, stack_.make({.kind = kind, .integer = value}));
  }
  stack_.push(shared);
  return true;
}

Result<bool> PickleMachine::push_small_integer(std::uint16_t value) {
  if (value >= small_integers_.size()) small_integers_.resize(std::size_t{value} + 1, kNoNode);
  return push_shared(small_integers_[value], PickleKind::integer, value);
}

Result<bool> PickleMachine::push_constant(char opcode) {
  switch (opcode) {
    case 'N': return push_shared(none_, PickleKind::none, 0);
    case '\x88': return push_shared(true_, PickleKind::boolean, 1);
    case '\x89': return push_shared(false_, PickleKind::boolean, 0);
    case ')': return push_shared(empty_tuple_, PickleKind::tuple, 0);
    case 'K': {
      BITSNAP_ASSIGN(const auto value, text_.take_number<std::uint8_t>());
      return push_small_integer(value);
    }
    default: return false;
  }
}

Result<bool> PickleMachine::push_number(char opcode) {
  switch (opcode) {
    case 'J': {
      BITSNAP_ASSIGN(const auto value, text_.take_number<std::int32_t>());
      return push({.kind = PickleKind::integer, .integer = value});
    }
    case 'M': {
      BITSNAP_ASSIGN(const auto value, text_.take_number<std::uint16_t>());
      return push_small_integer(value);
    }
    case 'G': return push_text(PickleKind::real, text_.take(8));
    case '\x8a': return push_long(text_.take_sized<std::uint8_t>());
    case '\x8b': return push_long(text_.take_sized<std::int32_t>());
    default: return false;
  }
}

Result<bool> PickleMachine::push_line(char opcode) {
  if (std::string_view("IFLSV").find(opcode) == std::string_view::npos) return false;
  BITSNAP_ASSIGN(std::string_view line, text_.take_line());
  switch (opcode) {
    case 'I':
      if (line == "00" || line == "01") return push({.kind = PickleKind::boolean, .integer = line == "01" ? 1 : 0});
      return push_digits(line);
    case 'F': return push_text(PickleKind::real, line);
    case 'L': return push_digits(line);
    case 'S':
      if (line.size() < 2 || line.front() != line.back() || (line.front() != '\'' && line.front() != '"')) {
        return fail(ErrorKind::corrupt, "a string has no quotes");
      }
      return push_text(PickleKind::string, line.substr(1, line.size() - 2));
    default: return push_text(PickleKind::string, line);
  }
}

Result<bool> PickleMachine::push_sized(char opcode) {
  switch (opcode) {
    case 'T': return push_text(PickleKind::string, text_.take_sized<std::int32_t>());
    case 'U': return push_text(PickleKind::string, text_.take_sized<std::uint8_t>());
    case 'X': return push_text(PickleKind::string, text_.take_sized<std::uint32_t>());
    case '\x8c': return push_text(PickleKind::string, text_.take_sized<std::uint8_t>());
    case '\x8d': return push_text(PickleKind::string, text_.take_sized<std::uint64_t>());
    case 'B': return push_text(PickleKind::bytes, text_.take_sized<std::uint32_t>());
    case 'C': return push_text(PickleKind::bytes, text_.take_sized<std::uint8_t>());
    case '\x8e':
    case '\x96': return push_text(PickleKind::bytes, text_.take_sized<std::uint64_t>());
    default: return false;
  }
}

// A tuple of the last `count` values.
Result<bool> PickleMachine::push_top(std::size_t count) {
  std::vector<NodeId> items(count);
  for (std::size_t i = count; i-- > 0;) {
    BITSNAP_ASSIGN(items[i], stack_.pop());
  }
  return push({.kind = PickleKind::tuple, .items = std::move(items)});
}

Result<bool> PickleMachine::build_container(char opcode) {
  const auto push_marked = [&](PickleKind kind) -> Result<bool> {
    BITSNAP_ASSIGN(const std::span<const NodeId> values, stack_.above_mark());
    if (kind == PickleKind::dict && values.size() % 2 != 0) return fail(ErrorKind::corrupt, "a key has no value");
    std::vector<NodeId> items(values.begin(), values.end());
    stack_.drop_to_mark();
    return push({.kind = kind, .items = std::move(items)});
  };
  switch (opcode) {
    case ']': return push({.kind = PickleKind::list});
    case '}': return push({.kind = PickleKind::dict});
    case '\x8f': return push({.kind = PickleKind::set});
    case 'l': return push_marked(PickleKind::list);
    case 't': return push_marked(PickleKind::tuple);
    case 'd': return push_marked(PickleKind::dict);
    case '\x91': return push_marked(PickleKind::set);
    case '\x85': return push_top(1);
    case '\x86': return push_top(2);
    case '\x87': return push_top(3);
    default: return false;
  }
}

// Whether the value is an object whose class only Python knows.
bool is_opaque_object(PickleKind kind) {
  return kind == PickleKind::call || kind == PickleKind::persistent_id || kind == PickleKind::other;
}

Result<void> PickleMachine::add_values(NodeId to, std::span<const NodeId> values, PickleKind plain) {
  const PickleKind kind = stack_.node(to).kind;
  if (kind != plain && !is_opaque_object(kind)) {
    return fail(ErrorKind::corrupt, "items are added to a value that takes none");
  }
  // An object may have both; its plain items then have no key.
  if (stack_.node(to).has_pairs) {
    if (none_ == kNoNode) {
      BITSNAP_ASSIGN(none_, stack_.make(PickleNode()));
    }
    for (const NodeId value : values) stack_.node(to).items.insert(stack_.node(to).items.end(), {none_, value});
    return {};
  }
  std::vector<NodeId>& items = stack_.node(to).items;
  items.insert(items.end(), values.begin(), values.end());
  return {};
}

Result<void> PickleMachine::add_pairs(NodeId to, std::span<const NodeId> values) {
  PickleNode& node = stack_.node(to);
  if (node.kind != PickleKind::dict && !is_opaque_object(node.kind)) {
    return fail(ErrorKind::corrupt, "keys are added to a value that takes none");
  }
  if (values.size() % 2 != 0) return fail(ErrorKind::corrupt, "a key has no value");
  if (node.items.empty()) node.has_pairs = true;
  node.items.insert(node.items.end(), values.begin(), values.end());
  return {};
}

Result<bool> PickleMachine::add_items(char opcode) {
  switch (opcode) {
    case 'a': {
      BITSNAP_ASSIGN(const NodeId value, stack_.pop());
      BITSNAP_ASSIGN(const NodeId to, stack_.top());
      BITSNAP_TRY(add_values(to, std::span(&value, 1), PickleKind::list));
      return true;
    }
    case 's': {
      BITSNAP_ASSIGN(const NodeId value, stack_.pop());
      BITSNAP_ASSIGN(const NodeId key, stack_.pop());
      BITSNAP_ASSIGN(const NodeId to, stack_.top());
      BITSNAP_TRY(add_pairs(to, std::array{key, value}));
      return true;
    }
    case 'e':
    case 'u':
    case '\x90': {
      BITSNAP_ASSIGN(const std::span<const NodeId> above, stack_.above_mark());
      const std::vector<NodeId> values(above.begin(), above.end());
      stack_.drop_to_mark();
      BITSNAP_ASSIGN(const NodeId to, stack_.top());
      if (opcode == 'u') {
        BITSNAP_TRY(add_pairs(to, values));
      } else {
        BITSNAP_TRY(add_values(to, values, opcode == 'e' ? PickleKind::list : PickleKind::set));
      }
      return true;
    }
    default: return false;
  }
}

Result<bool> PickleMachine::use_memo(char opcode) {
  std::uint64_t number = stack_.memo_size();
  switch (opcode) {
    case 'p':
    case 'g': {
      BITSNAP_ASSIGN(number, text_.take_line_number());
      break;
    }
    case 'q':
    case 'h': {
      BITSNAP_ASSIGN(number, text_.take_number<std::uint8_t>());
      break;
    }
    case 'r':
    case 'j': {
      BITSNAP_ASSIGN(number, text_.take_number<std::uint32_t>());
      break;
    }
    case '\x94': break;
    default: return false;
  }
  if (opcode == 'g' || opcode == 'h' || opcode == 'j') {
    BITSNAP_ASSIGN(const NodeId id, stack_.get(number));
    stack_.push(id);
  } else {
    BITSNAP_ASSIGN(const NodeId id, stack_.top());
    stack_.put(number, id);
  }
  return true;
}

Result<bool> PickleMachine::push_call(NodeId callable, NodeId arguments) {
  return push({.kind = PickleKind::call, .callable = callable, .arguments = arguments});
}

Result<NodeId> PickleMachine::make_global(NodeId module, NodeId name) {
  if (stack_.node(module).kind != PickleKind::string || stack_.node(name).kind != PickleKind::string) {
    return fail(ErrorKind::corrupt, "the name of a class is not a string");
  }
  return stack_.make({.kind = PickleKind::global, .items = {module, name}});
}

Result<bool> PickleMachine::push_global(NodeId module, NodeId name) {
  BITSNAP_ASSIGN(const NodeId id, make_global(module, name));
  stack_.push(id);
  return true;
}

// The values above the mark after the first `skip`; they leave the stack, and so does the mark.
Result<NodeId> PickleMachine::make_tuple_above_mark(std::size_t skip) {
  BITSNAP_ASSIGN(const std::span<const NodeId> values, stack_.above_mark());
  if (values.size() < skip) return fail(ErrorKind::corrupt, "the stack has no class");
  const std::span<const NodeId> kept = values.subspan(skip);
  std::vector<NodeId> items(kept.begin(), kept.end());
  stack_.drop_to_mark();
  return stack_.make({.kind = PickleKind::tuple, .items = std::move(items)});
}

// Classes that two lines of text name, and persistent ids.
Result<bool> PickleMachine::make_by_name(char opcode) {
  if (opcode == 'c' || opcode == 'i') {
    BITSNAP_ASSIGN(const std::string_view module, text_.take_line());
    BITSNAP_ASSIGN(const std::string_view name, text_.take_line());
    BITSNAP_ASSIGN(const NodeId module_id, stack_.make({.kind = PickleKind::string, .text = module}));
    BITSNAP_ASSIGN(const NodeId name_id, stack_.make({.kind = PickleKind::string, .text = name}));
    if (opcode == 'c') return push_global(module_id, name_id);
    BITSNAP_ASSIGN(const NodeId callable, make_global(module_id, name_id));
    BITSNAP_ASSIGN(const NodeId arguments, make_tuple_above_mark(0));
    return push_call(callable, arguments);
  }
  if (opcode == '\x93') {
    BITSNAP_ASSIGN(const NodeId name, stack_.pop());
    BITSNAP_ASSIGN(const NodeId module, stack_.pop());
    return push_global(module, name);
  }
  if (opcode != 'P' && opcode != 'Q') return false;
  if (opcode == 'P') BITSNAP_TRY(push_text(PickleKind::string, text_.take_line()));
  BITSNAP_ASSIGN(const NodeId id, stack_.pop());
  return push({.kind = PickleKind::persistent_id, .arguments = id});
}

Result<bool> PickleMachine::make_object(char opcode) {
  switch (opcode) {
    case 'R':
    case '\x81': {
      BITSNAP_ASSIGN(const NodeId arguments, stack_.pop());
      BITSNAP_ASSIGN(const NodeId callable, stack_.pop());
      return push_call(callable, arguments);
    }
    case '\x92': {
      // Keywords and positional arguments become one tuple of both.
      BITSNAP_TRY(push_top(2));
      BITSNAP_ASSIGN(const NodeId arguments, stack_.pop());
      BITSNAP_ASSIGN(const NodeId callable, stack_.pop());
      return push_call(callable, arguments);
    }
    case 'o': {
      BITSNAP_ASSIGN(const std::span<const NodeId> values, stack_.above_mark());
      const NodeId callable = values.empty() ? kNoNode : values.front();
      BITSNAP_ASSIGN(const NodeId arguments, make_tuple_above_mark(1));
      return push_call(callable, arguments);
    }
    case 'b': {
      BITSNAP_ASSIGN(const NodeId state, stack_.pop());
      BITSNAP_ASSIGN(const NodeId object, stack_.top());
      stack_.node(object).state = state;
      return true;
    }
    case '\x82':
    case '\x83':
    case '\x84': {
      BITSNAP_TRY(text_.take(opcode == '\x82' ? 1 : (opcode == '\x83' ? 2 : 4)));
      return push_text(PickleKind::other, std::string_view());
    }
    case '\x97': return push_text(PickleKind::other, std::string_view());
    default: return false;
  }
}

// Opcodes that change the stack, or nothing.
Result<bool> PickleMachine::move_on(char opcode) {
  switch (opcode) {
    case '(': stack_.push_mark(); return true;
    case '0': {
      BITSNAP_TRY(stack_.discard());
      return true;
    }
    case '1': {
      BITSNAP_TRY(stack_.above_mark());
      stack_.drop_to_mark();
      return true;
    }
    case '2': {
      BITSNAP_ASSIGN(const NodeId id, stack_.top());
      stack_.push(id);
      return true;
    }
    case '\x80': {
      BITSNAP_ASSIGN(const auto protocol, text_.take_number<std::uint8_t>());
      if (protocol > 5) return fail(ErrorKind::unsupported, fmt::format("pickle protocol {} is above 5", protocol));
      return true;
    }
    case '\x95': {
      BITSNAP_TRY(text_.take(8));
      return true;
    }
    case '\x98': {
      BITSNAP_TRY(stack_.top());
      return true;
    }
    default: return false;
  }
}

Result<bool> PickleMachine::step(char opcode) {
  for (const auto group : {&PickleMachine::push_sized, &PickleMachine::push_number, &PickleMachine::use_memo,
                           &PickleMachine::build_container, &PickleMachine::move_on, &PickleMachine::push_constant,
                           &PickleMachine::add_items, &PickleMachine::make_object, &PickleMachine::make_by_name,
                           &PickleMachine::push_line}) {
    BITSNAP_ASSIGN(const bool done, (this->*group)(opcode));
    if (done) return true;
  }
  return false;
}

Result<PickleGraph> PickleMachine::run() {
  while (!text_.at_end()) {
    const std::size_t start = text_.offset();
    const char opcode = text_.next();
    const auto where = [&] {
      return fmt::format("pickle opcode 0x{:02x} at offset {}", static_cast<unsigned char>(opcode), start);
    };
    if (opcode == '.') {
      Result<NodeId> root = stack_.pop();
      if (!root) return tl::unexpected(std::move(root).error().within(where()));
      stack_.graph().root = *root;
      stack_.graph().bytes = text_.offset();
      return std::move(stack_.graph());
    }
    Result<bool> known = step(opcode);
    if (!known) return tl::unexpected(std::move(known).error().within(where()));
    if (!*known) return fail(ErrorKind::corrupt, where() + " is unknown");
  }
  return fail(ErrorKind::truncated, fmt::format("the pickle ends after {} bytes without STOP", text_.offset()));
}

}  // namespace

Result<PickleGraph> read_pickle(std::string_view text, const DecodeLimits& limits) {
  return PickleMachine(text, limits).run();
}

}  // namespace bitsnap::interop
