// Training: a training of one parameter.
#include "store/training_testing.hpp"

#include <algorithm>

#include <stdexcept>
#include <utility>

#include "base/bytes.hpp"

namespace bitsnap::store {

using save::Bytes;
using save::source;

std::shared_ptr<const Blob> to_blob(const Bytes& bytes) {
  BlobWriter writer("in memory");
  if (!writer.append(bytes) || !writer.close()) throw std::logic_error("no memory");
  return writer.blob();
}

CachedSnapshot from_file(std::uint64_t step, const Snapshot& snapshot, const Bytes& file) {
  CachedSnapshot made{step, snapshot.id(), to_blob(file), {}, false};
  for (const BaseReference& base : snapshot.bases()) made.needs.push_back(base.id);
  return made;
}

Training::Training(std::uint64_t seed)
    : trained_(codec::trained_state(kElements, seed)),
      frozen_(save::bf16_weights(kElements, static_cast<unsigned>(seed) + 100)),
      zeros_(4 * kElements),
      scale_(save::random_bytes(64, static_cast<unsigned>(seed) + 200)) {
  write();
}

void Training::step() {
  codec::take_step(trained_, {}, 1000 + ++steps_);
  write();
}

void Training::scribble() {
  for (save::Bytes* bytes : {&weight_, &master_, &exp_avg_, &exp_avg_sq_, &frozen_, &zeros_, &count_, &scale_}) {
    std::ranges::fill(*bytes, std::byte{0x5A});
  }
}

void Training::write() {
  master_ = codec::trained_bytes(trained_.x);
  exp_avg_ = codec::trained_bytes(trained_.m);
  exp_avg_sq_ = codec::trained_bytes(trained_.v);
  weight_.resize(master_.size() / 2);
  for (std::size_t i = 0; 2 * i < weight_.size(); ++i) {
    auto bits = load_le<std::uint32_t>(master_.data() + 4 * i);
    bits += 0x7fff + (bits >> 16 & 1);
    store_le(weight_.data() + 2 * i, static_cast<std::uint16_t>(bits >> 16));
  }
  count_.resize(8);
  store_le(count_.data(), steps_);
}

State Training::state() const {
  State made;
  made.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  made.tensors.push_back(source("model.embedding", DType::bf16, {kElements}, frozen_));
  TensorSource& tied = made.tensors.emplace_back(source("model.head", DType::bf16, {kElements}, frozen_));
  tied.info.alias_of = 1;
  made.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
  made.tensors.push_back(source("exp_avg.w", DType::f32, {kElements}, exp_avg_));
  made.tensors.push_back(source("exp_avg_sq.w", DType::f32, {kElements}, exp_avg_sq_));
  made.tensors.push_back(source("other.zeros", DType::f32, {kElements}, zeros_));
  made.tensors.push_back(source("step", DType::i64, {1}, count_));
  made.tensors.push_back(source("scale", DType::f32, {16}, scale_));
  return made;
}

SaveOptions Training::bounded() const {
  SaveOptions options{.settings = {.policy = Policy::bounded}};
  options.adam = AdamNumbers{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 100 + steps_};
  return options;
}

std::vector<Bytes> Training::slot() const {
  return {weight_, frozen_, {}, master_, exp_avg_, exp_avg_sq_, zeros_, count_, scale_};
}

std::string Training::difference(const Snapshot& snapshot) const {
  const State expected = state();
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    const TensorInfo& info = expected.tensors[i].info;
    if (i >= snapshot.tensors().size() || snapshot.tensors()[i].name != info.name) return "no tensor " + info.name;
    Bytes found(info.size_bytes);
    if (const auto read = snapshot.read_bytes(i, 0, found); !read) return read.error().message();
    if (!std::equal(found.begin(), found.end(), expected.tensors[i].data)) return "other bytes in " + info.name;
  }
  return "";
}

}  // namespace bitsnap::store
