// Stores that each break one rule of docs/spec/store.md, or only seem to, from store_rules.json, which the second
// reader also uses (second_reader/store_rules_test.py describes it). The library must reject or read each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <bitsnap/store.hpp>

#include "base/hash.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::store {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const fs::path kTests = BITSNAP_TESTS_DIR;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  if (fs::file_size(path) > 0) text << file.rdbuf();
  return text.str();
}

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string replaced(std::string text, const Json& pair) {
  const auto old_part = pair.at(0).get<std::string>();
  const std::size_t at = text.find(old_part);
  EXPECT_NE(at, std::string::npos) << old_part;
  return text.replace(at, old_part.size(), pair.at(1).get<std::string>());
}

// The record with another body and its correct hash.
std::string with_body(const std::string& record, const std::string& body) {
  const std::string head = record.substr(0, record.find(':') + 1);
  const std::uint64_t hash = hash64(std::as_bytes(std::span(body.data(), body.size())));
  return head + body + fmt::format(",\"hash\":\"{:016x}\"}}\n", hash);
}

std::string body_of(const std::string& record) {
  const std::size_t begin = record.find(':') + 1;
  return record.substr(begin, record.rfind(",\"hash\"") - begin);
}

void edit(const fs::path& store, const Json& change) {
  const fs::path path = store / change.at("file").get<std::string>();
  const auto target = [&](const char* key) {
    fs::path place = store / change.at(key).get<std::string>();
    fs::create_directories(place.parent_path());
    return place;
  };
  if (change.contains("remove")) {
    ASSERT_TRUE(fs::remove(path)) << path;
  } else if (change.contains("rename")) {
    fs::rename(path, target("rename"));
  } else if (change.contains("copy")) {
    fs::copy_file(path, target("copy"), fs::copy_options::overwrite_existing);
  } else {
    std::string text = read_text(path);
    if (change.contains("cut")) text.resize(text.size() - std::min(text.size(), change.at("cut").get<std::size_t>()));
    if (change.contains("append")) text += change.at("append").get<std::string>();
    if (change.contains("text")) text = replaced(text, change.at("text"));
    if (change.contains("body")) text = with_body(text, replaced(body_of(text), change.at("body")));
    if (change.contains("patch")) {
      text = with_body(text, Json::parse(body_of(text)).patch(change.at("patch")).dump());
    }
    write_text(path, text);
  }
}

// Reads all of one checkpoint; returns the first error.
std::optional<Error> read_step(const Store& store, std::uint64_t step) {
  const auto info = store.checkpoint(step);
  if (!info) return info.error();
  if (info->damage) return info->damage;
  for (std::uint32_t shard = 0; shard < info->shards; ++shard) {
    const auto snapshot = store.snapshot(step, shard);
    if (!snapshot) return snapshot.error();
    const auto damages = (*snapshot)->verify();
    if (!damages) return damages.error();
    if (!damages->empty()) return damages->front().error;
  }
  const auto files = store.files(step);
  if (!files) return files.error();
  return std::nullopt;
}

// The error of the operation that the rule names.
std::optional<Error> fault_of(const std::string& path, const Json& rule) {
  StoreOptions options;
  if (rule.contains("commits")) options.access = StoreAccess::shared;
  const auto store = Store::open(path, options);
  if (!store) return store.error();
  if (rule.contains("commits")) {
    const auto committed = (*store)->commit(12'345'678'902, 2, "a1");
    if (!committed) return committed.error();
    EXPECT_TRUE(*committed);
    return read_step(**store, 12'345'678'902);
  }
  if (rule.contains("labels")) {
    const auto labels = (*store)->labels();
    if (!labels) return labels.error();
    Json found = Json::object();
    for (const StepLabel& label : *labels) found[label.label] = label.step;
    EXPECT_EQ(found, rule.at("labels"));
    return std::nullopt;
  }
  if (rule.contains("step")) return read_step(**store, rule.at("step").get<std::uint64_t>());
  const auto steps = (*store)->steps();
  if (!steps) return steps.error();
  if (rule.contains("steps")) {
    EXPECT_EQ(*steps, rule.at("steps").get<std::vector<std::uint64_t>>());
  }
  for (const std::uint64_t step : *steps) {
    if (auto fault = read_step(**store, step)) return fault;
  }
  return std::nullopt;
}

TEST(StoreRules, AreEnforced) {
  const Json kinds = Json::parse(std::ifstream(kTests / "store_rules.json"));
  for (const auto& [kind, rules] : kinds.items()) {
    for (const Json& rule : rules) {
      SCOPED_TRACE(kind + ": " + rule.at("name").get<std::string>());
      const os::TemporaryDirectory directory;
      const std::string path = directory / "store";
      fs::copy(kTests / "golden" / "store" / rule.at("store").get<std::string>(), path, fs::copy_options::recursive);
      for (const Json& change : rule.at("edits")) edit(path, change);
      const std::optional<Error> fault = fault_of(path, rule);
      EXPECT_EQ(fault ? error_kind_name(fault->kind()) : "allowed", kind) << (fault ? fault->message() : "");
    }
  }
}

}  // namespace
}  // namespace bitsnap::store
