#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include <fmt/format.h>

#include "interop/pickle/pickle_reader.hpp"

namespace bitsnap::interop {
namespace {

std::string read_pickle_fixture(const std::string& name) {
  std::ifstream file(std::string(BITSNAP_TESTS_DIR) + "/../interop/pickle/fixtures/" + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The graph as text like Python's; a container that is inside itself is "...".
std::string describe(const PickleGraph& graph, NodeId id, std::map<NodeId, bool>& open) {
  if (id == kNoNode) return "-";
  const PickleNode& node = graph.at(id);
  const auto items = [&](const std::string& begin, const std::string& end, bool pairs) {
    if (open[id]) return std::string("...");
    open[id] = true;
    std::string text = begin;
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      if (i > 0) text += pairs && i % 2 != 0 ? ": " : ", ";
      text += describe(graph, node.items[i], open);
    }
    open[id] = false;
    return text + end;
  };
  switch (node.kind) {
    case PickleKind::none: return "None";
    case PickleKind::boolean: return node.integer != 0 ? "True" : "False";
    case PickleKind::integer: return std::to_string(node.integer);
    case PickleKind::big_integer: return "big";
    case PickleKind::real: return "real";
    case PickleKind::string: return fmt::format("'{}'", node.text);
    case PickleKind::bytes: return fmt::format("b'{}'", node.text);
    case PickleKind::list: return items("[", "]", false);
    case PickleKind::tuple: return items("(", ")", false);
    case PickleKind::set: return items("{", "}", false);
    case PickleKind::dict: return items("{", "}", true);
    case PickleKind::global: return fmt::format("{}.{}", graph.at(node.items[0]).text, graph.at(node.items[1]).text);
    case PickleKind::persistent_id: return "<" + describe(graph, node.arguments, open) + ">";
    case PickleKind::other: return "other";
    case PickleKind::call: break;
  }
  std::string text = describe(graph, node.callable, open) + describe(graph, node.arguments, open);
  if (!node.items.empty()) text += items("{", "}", node.has_pairs);
  if (node.state != kNoNode) text += " with " + describe(graph, node.state, open);
  return text;
}

std::string described(std::string_view text) {
  const Result<PickleGraph> graph = read_pickle(text, {});
  if (!graph) return fmt::format("{}: {}", error_kind_name(graph.error().kind()), graph.error().message());
  EXPECT_EQ(graph->bytes, text.size());
  std::map<NodeId, bool> open;
  return describe(*graph, graph->root, open);
}

ErrorKind refusal_of_pickle(std::string_view text) {
  const Result<PickleGraph> graph = read_pickle(text, {});
  return graph ? ErrorKind::internal : graph.error().kind();
}

TEST(PickleReader, ReadsEveryProtocol) {
  for (int protocol = 0; protocol <= 5; ++protocol) {
    const std::string thing = protocol < 2
                                  ? "copyreg._reconstructor(fixture.Thing, __builtin__.object, None) with {'size': 3}"
                                  : "fixture.Thing() with {'size': 3}";
    const std::string expected =
        "{'numbers': [0, 255, 65535, -1, 2147483648, -9223372036854775808, True, False], 'magic': big, "
        "'texts': ['', 'plain', '" +
        std::string(300, 'x') +
        "'], 'shared': (['a', real], ['a', real]), "
        "'ordered': collections.OrderedDict(){'x': 1, 'y': None}, 'circle': [...], 'tuples': ((), (1), (1, 2), (1, 2, "
        "3), (1, 2, 3, 4)), 'thing': " +
        thing + "}";
    std::string found = described(read_pickle_fixture(fmt::format("values_{}.pkl", protocol)));
    if (const std::size_t at = found.find("copy_reg"); at != std::string::npos) found.replace(at, 8, "copyreg");
    EXPECT_EQ(found, expected) << protocol;
  }
}

TEST(PickleReader, ReadsSetsBytesAndArgumentsOfClasses) {
  EXPECT_EQ(described(read_pickle_fixture("extra_5.pkl")),
            "{'set': {1}, 'frozen': {2}, 'bytes': b'abc', 'array': b'xyz', 'pair': fixture.Pair((1, 2))}");
  EXPECT_EQ(described(read_pickle_fixture("extra_4.pkl")),
            "{'set': {1}, 'frozen': {2}, 'bytes': b'abc', 'array': builtins.bytearray(b'xyz'), "
            "'pair': fixture.Pair((1, 2))}");
  EXPECT_EQ(described(read_pickle_fixture("extra_2.pkl")).substr(0, 26), "{'set': __builtin__.set([1");
}

TEST(PickleReader, SharesValuesOfTheMemo) {
  const std::string text = read_pickle_fixture("values_2.pkl");
  const PickleGraph graph = read_pickle(text, {}).value();
  const PickleNode* shared = graph.find(graph.lookup(graph.root, "shared"), PickleKind::tuple);
  ASSERT_NE(shared, nullptr);
  EXPECT_EQ(shared->items[0], shared->items[1]);
  EXPECT_EQ(graph.lookup(graph.root, "nothing"), kNoNode);
  EXPECT_EQ(graph.lookup(kNoNode, "nothing"), kNoNode);
}

TEST(PickleReader, ReadsRareOpcodes) {
  EXPECT_EQ(described("Px1\n."), "<'x1'>");
  EXPECT_EQ(described("K\x05Q."), "<5>");
  EXPECT_EQ(described("(K\x01im\nC\n."), "m.C(1)");
  EXPECT_EQ(described("(cm\nC\nK\x01o."), "m.C(1)");
  EXPECT_EQ(described("cm\nC\n)}\x92."), "m.C((), {})");
  EXPECT_EQ(described("K\x01K\x02"
                      "0."),
            "1");
  EXPECT_EQ(described("K\x01(K\x02"
                      "1."),
            "1");
  EXPECT_EQ(described("K\x01(0."), "1");
  EXPECT_EQ(described("K\x01"
                      "2\x86."),
            "(1, 1)");
  EXPECT_EQ(described("(K\x01K\x02"
                      "d."),
            "{1: 2}");
  EXPECT_EQ(described("(K\x01K\x02l."), "[1, 2]");
  EXPECT_EQ(described("I01\n."), "True");
  EXPECT_EQ(described("L-12L\n."), "-12");
  EXPECT_EQ(described("\x82\x01."), "other");
  EXPECT_EQ(described("\x97\x98."), "other");
  EXPECT_EQ(described("K\x01p99999999999999999999\n."),
            "corrupt: pickle opcode 0x70 at offset 2: the number of a memo is expected");
  EXPECT_EQ(described("K\x01p9999999999\n0g9999999999\n."), "1");
}

TEST(PickleReader, RejectsWhatThePickleMachineRejects) {
  const auto expect_corrupt = [](std::string_view text) {
    EXPECT_EQ(refusal_of_pickle(text), ErrorKind::corrupt) << text;
  };
  for (const char* text : {".",       "(.",    "N\x85\x85\x30.", "a.",    "Na.",    "NNa.", "t.",  "e.",
                           "](Nu.",   "}(Nu.", "(Nd.",           "g1\n.", "h\x01.", "R.",   "NR.", "b.",
                           "NN\x93.", "(o.",   "S'a\n.",         "Sa\n.", "\xff.",  "2.",   "1.",  "0."}) {
    expect_corrupt(text);
  }
  EXPECT_EQ(refusal_of_pickle(std::string_view("\x80\x06N.", 4)), ErrorKind::unsupported);
}

TEST(PickleReader, RejectsSizesBeyondTheText) {
  EXPECT_EQ(refusal_of_pickle("X\xff\xff\xff\xff."), ErrorKind::truncated);
  EXPECT_EQ(refusal_of_pickle("\x8e\xff\xff\xff\xff\xff\xff\xff\xff."), ErrorKind::truncated);
  EXPECT_EQ(refusal_of_pickle("\x8b\xff\xff\xff\x7f."), ErrorKind::truncated);
  EXPECT_EQ(refusal_of_pickle("\x8b\xff\xff\xff\xff."), ErrorKind::corrupt);
  EXPECT_EQ(refusal_of_pickle("T\xff\xff\xff\xff."), ErrorKind::corrupt);
}

TEST(PickleReader, RejectsEveryTruncation) {
  for (const char* name : {"values_0.pkl", "values_2.pkl", "values_5.pkl", "extra_5.pkl"}) {
    const std::string text = read_pickle_fixture(name);
    for (std::size_t size = 0; size < text.size(); ++size) {
      EXPECT_EQ(refusal_of_pickle(std::string_view(text).substr(0, size)), ErrorKind::truncated) << name << size;
    }
  }
}

TEST(PickleReader, SurvivesRandomDamage) {
  std::mt19937 random(7);
  for (const char* name : {"values_0.pkl", "values_2.pkl", "values_4.pkl", "extra_5.pkl"}) {
    const std::string text = read_pickle_fixture(name);
    for (int i = 0; i < 3000; ++i) {
      std::string damaged = text;
      for (int flips = 0; flips < 3; ++flips) damaged[random() % damaged.size()] = static_cast<char>(random());
      (void)read_pickle(damaged, {});
    }
  }
}

TEST(PickleReader, TakesLinearTimeForHostilePickles) {
  constexpr std::size_t kMany = 1'000'000;
  std::string nested(kMany, ']');
  nested += std::string(kMany - 1, 'a') + ".";
  // Two bytes for each value: more values than the default limit allows.
  EXPECT_EQ(refusal_of_pickle(nested), ErrorKind::resource_exhausted);
  DecodeLimits twice;
  twice.max_cost = 2;
  EXPECT_TRUE(read_pickle(nested, twice).has_value());
  EXPECT_EQ(refusal_of_pickle("K\x01" + std::string(kMany, '\x85') + "."), ErrorKind::resource_exhausted);
  // Each tuple holds the one before twice.
  std::string bomb = "K\x01";
  for (std::size_t i = 0; i < kMany; ++i) bomb += "2\x86";
  EXPECT_TRUE(read_pickle(bomb + ".", twice).has_value());
  EXPECT_EQ(read_pickle(std::string(kMany, 'N') + std::string(kMany, ')') + ".", {}).value().nodes.size(), 2U);
  EXPECT_TRUE(read_pickle("N" + std::string(kMany, '(') + "N.", {}).has_value());
  EXPECT_TRUE(read_pickle("]" + std::string(kMany, '\x94') + ".", {}).has_value());
  // Memo numbers with large gaps.
  std::string sparse = "N";
  for (std::size_t i = 0; i < kMany / 10; ++i) sparse += fmt::format("p{}\n", i * 218'971'000'003ULL);
  EXPECT_TRUE(read_pickle(sparse + ".", {}).has_value());
  DecodeLimits few;
  few.tree_nodes = 100;
  const Result<PickleGraph> limited = read_pickle(nested, few);
  ASSERT_FALSE(limited.has_value());
  EXPECT_EQ(limited.error().kind(), ErrorKind::resource_exhausted);
}

}  // namespace
}  // namespace bitsnap::interop
