#include "cli/input/model_folder.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include <bitsnap/safetensors.hpp>
#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/file_paths.hpp"

namespace bitsnap::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kConfig = "config.json";
// How the names of the other files begin or end.
constexpr std::array<std::string_view, 11> kBeginnings = {
    "generation_config.json", "tokenizer",    "vocab",         "merges",
    "special_tokens_map",     "added_tokens", "chat_template", "preprocessor_config",
    "processor_config",       "spiece",       "sentencepiece"};
constexpr std::array<std::string_view, 3> kEndings = {".tiktoken", ".jinja", ".py"};
constexpr std::uint64_t kMostFileBytes = 256'000'000;

bool is_model_file(std::string_view name) {
  return name == kConfig ||
         std::ranges::any_of(kBeginnings, [&](std::string_view text) { return name.starts_with(text); }) ||
         std::ranges::any_of(kEndings, [&](std::string_view text) { return name.ends_with(text); });
}

bool has_config(const ModelFiles& files) {
  return std::ranges::any_of(files, [](const auto& file) { return file.first == kConfig; });
}

Result<std::string> read_whole(const fs::path& path) {
  BITSNAP_ASSIGN(const std::uint64_t size, file_size(path.string()));
  if (size > kMostFileBytes) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("{}: has {} bytes, at most {} are copied", path.string(), size, kMostFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(file), {});
  if (file.bad() || content.size() != size) {
    return fail(ErrorKind::io, fmt::format("{}: cannot be read", path.string()));
  }
  return content;
}

}  // namespace

namespace {

Result<void> read_shapes(const fs::path& file, ModelOptions& model) {
  BITSNAP_ASSIGN(const State state, open_safetensors(file.string()));
  for (const TensorSource& tensor : state.tensors) model.shapes[tensor.info.name] = tensor.info.shape;
  return {};
}

}  // namespace

Result<void> read_model_tensors(const std::string& folder, ModelOptions& model) {
  std::error_code error;
  const fs::path whole = fs::path(folder) / "model.safetensors";
  const fs::path index = fs::path(folder) / "model.safetensors.index.json";
  if (fs::exists(whole, error)) {
    BITSNAP_TRY(read_shapes(whole, model));
    for (const auto& [name, shape] : model.shapes) model.names.push_back(name);
  } else if (fs::exists(index, error)) {
    BITSNAP_ASSIGN(const std::string text, read_whole(index));
    const Json document = Json::parse(text, nullptr, false);
    if (!document.is_object() || !document.contains("weight_map") || !document["weight_map"].is_object()) {
      return fail(ErrorKind::corrupt, fmt::format("{}: is no index of the files of a model", index.string()));
    }
    std::set<std::string> files;
    for (const auto& entry : document["weight_map"].items()) {
      model.names.push_back(entry.key());
      if (entry.value().is_string()) files.insert(entry.value().get<std::string>());
    }
    for (const std::string& file : files) {
      const fs::path path = fs::path(folder) / file;
      if (fs::exists(path, error)) BITSNAP_TRY(read_shapes(path, model));
    }
  }
  return {};
}

Result<ModelFiles> model_files(const std::string& folder) {
  ModelFiles files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!is_model_file(name) || !entry.is_regular_file(error)) continue;
    BITSNAP_ASSIGN(std::string content, read_whole(entry.path()));
    files.emplace_back(name, std::move(content));
  }
  std::ranges::sort(files);
  return has_config(files) ? files : ModelFiles();
}

Result<ModelFiles> model_files(const RunPath& checkpoint) {
  BITSNAP_ASSIGN(const auto store, open_to_read(checkpoint.run));
  std::uint64_t step = 0;
  if (checkpoint.step) {
    step = *checkpoint.step;
  } else {
    BITSNAP_ASSIGN(step, newest_step(*store, checkpoint.run));
  }
  BITSNAP_ASSIGN(const auto kept, store->files(step));
  ModelFiles files;
  for (const auto& [name, content] : kept) {
    if (is_model_file(name))
      files.emplace_back(name, std::string(reinterpret_cast<const char*>(content.data()), content.size()));
  }
  return has_config(files) ? files : ModelFiles();
}

Result<void> set_config_dtype(ModelFiles& files, const std::vector<TensorInfo>& tensors) {
  constexpr std::array<std::pair<DType, std::string_view>, 4> kTorchNames = {
      {{DType::f32, "float32"}, {DType::bf16, "bfloat16"}, {DType::f16, "float16"}, {DType::f64, "float64"}}};
  std::set<std::string_view> found;
  for (const TensorInfo& tensor : tensors) {
    const auto* const name = std::ranges::find(kTorchNames, tensor.dtype, &std::pair<DType, std::string_view>::first);
    if (name != kTorchNames.end()) found.insert(name->second);
  }
  const auto config = std::ranges::find(files, kConfig, [](const auto& file) { return std::string_view(file.first); });
  if (config == files.end() || found.size() != 1) return {};
  Json document = Json::parse(config->second, nullptr, false);
  if (!document.is_object()) return fail(ErrorKind::corrupt, "config.json: is no JSON object");
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (document.contains(key)) document[key] = *found.begin();
  }
  config->second = document.dump(2) + "\n";
  return {};
}

}  // namespace bitsnap::cli
