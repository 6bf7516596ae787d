// Tests that every format of files must pass. They find formats by their rows in the table, and files by what the tests
// of a format registered.
#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <random>
#include <string>

#include <fmt/format.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/writer.hpp>

#include "base/bytes.hpp"
#include "base/sanitizers_testing.hpp"
#include "interop/container/contents_testing.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/folder/container_conformance_testing.hpp"
#include "interop/folder/container_kinds.hpp"
#include "os/temporary_directory_testing.hpp"

namespace {

// What the calling thread has allocated with new and not freed, and the most of it.
thread_local bool counts_memory = false;
thread_local std::int64_t live_bytes = 0;
thread_local std::int64_t peak_bytes = 0;

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void* operator new(std::size_t size) {
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  if (counts_memory) {
    live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
    peak_bytes = std::max(peak_bytes, live_bytes);
  }
  return memory;
}

void operator delete(void* memory) noexcept {
  if (counts_memory) live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

#endif

namespace bitsnap::interop {
namespace {

namespace fs = std::filesystem;

// What reading a file of N bytes may take: free + per_byte * N.
struct Allowance {
  std::uint64_t free = 0;
  std::uint64_t per_byte = 0;
  [[nodiscard]] std::uint64_t of(std::uint64_t bytes) const { return free + per_byte * bytes; }
};
constexpr Allowance kMemory{.free = std::uint64_t{1} << 20U, .per_byte = 256};
constexpr std::uint64_t kFreeReads = std::uint64_t{64} << 10U;
constexpr std::uint64_t kMostTensorBytes = std::uint64_t{1} << 26U;
constexpr double kFreeSeconds = 2;  // of the processor
constexpr double kSecondsPerMegabyte = 4;

constexpr std::size_t kSmallBytes = 1024;
// Of what is read, the part that also goes through a snapshot.
constexpr std::size_t kLawStep = kHasSanitizer ? 997 : 197;
// Of a hostile file.
constexpr std::size_t kFewBytes = 50'000;
constexpr std::size_t kDraws = kHasSanitizer ? 500 : 4000;

double processor_seconds() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::uint64_t total_bytes(const ContainerExample& file) {
  std::uint64_t total = file.bytes.size();
  for (const auto& [path, bytes] : file.beside) total += bytes.size();
  return total;
}

// Bytes in memory that add what is read to `read_bytes`.
FileBytes counted_bytes(const std::string& bytes, std::uint64_t& read_bytes) {
  return {bytes.size(), [&bytes, &read_bytes](std::uint64_t offset, ByteSpan out) -> Result<void> {
            read_bytes += out.size();
            std::ranges::copy(as_byte_span(bytes).subspan(static_cast<std::size_t>(offset), out.size()), out.begin());
            return {};
          }};
}

class ContainerConformance : public testing::TestWithParam<std::string> {
 protected:
  using MaybeContents = Result<std::optional<Contents>>;

  void SetUp() override {
    ASSERT_NE(examples_, nullptr) << "the tests of this format register no ContainerExamples";
    sound_ = examples_->sound();
    ASSERT_FALSE(sound_.empty());
  }

  [[nodiscard]] const ContainerKind& kind() const { return *kind_; }

  // Reads a file as a container and, for a conversion, as a state. Whatever its bytes are, the result is an error of
  // the bytes, or tensors that lie in the file, and costs no more than the size of the file justifies.
  MaybeContents read(const ContainerExample& file) const {
    std::uint64_t read_bytes = 0;
    const FileBytes bytes = counted_bytes(file.bytes, read_bytes);
    MaybeContents contents = measured(file, read_bytes, [&] { return read_contents(file, bytes, read_bytes); });
    if (contents && *contents) {
      EXPECT_EQ(find_misplaced(**contents, file.bytes.size()), "");
    } else if (!contents) {
      EXPECT_TRUE(is_fault_of_bytes(contents.error().kind())) << contents.error().message();
    }
    if (kind().read_state != nullptr) {
      read_bytes = 0;
      check_state(measured(file, read_bytes, [&] { return kind().read_state(bytes, {}); }));
    }
    return contents;
  }

  // Calls `visit` with `file`, changed in every way that `change` makes of its bytes, and of the bytes of each file
  // beside it.
  template <typename Change, typename Visit>
  static void for_each_changed(const ContainerExample& file, const Change& change, const Visit& visit) {
    change(file.bytes, [&](std::string bytes) {
      ContainerExample changed = file;
      changed.bytes = std::move(bytes);
      visit(changed);
    });
    for (const auto& [path, original] : file.beside) {
      change(original, [&](std::string bytes) {
        ContainerExample changed = file;
        changed.beside[path] = std::move(bytes);
        visit(changed);
      });
    }
  }

  const ContainerKind* kind_ = find_container_kind(GetParam());
  const ContainerExamples* examples_ = find_container_examples(GetParam());
  std::vector<ContainerExample> sound_;

 private:
  MaybeContents read_contents(const ContainerExample& file, const FileBytes& bytes, std::uint64_t& read_bytes) const {
    DcpFolder beside([&](const std::string& path) -> Result<std::optional<FileBytes>> {
      const auto found = file.beside.find(path);
      if (found == file.beside.end()) return std::optional<FileBytes>();
      return counted_bytes(found->second, read_bytes);
    });
    const DecodeLimits limits;
    const ContainerFile recognized{file.path, std::string_view(file.bytes).substr(0, 32), bytes, beside, limits};
    static_cast<void>(kind().looks_like(recognized));
    return kind().read(recognized);
  }

  // A state whose tensors can be read at both ends.
  static void check_state(const Result<StateParts>& state) {
    if (!state) {
      EXPECT_NE(state.error().kind(), ErrorKind::io) << state.error().message();
      EXPECT_NE(state.error().kind(), ErrorKind::internal) << state.error().message();
      return;
    }
    for (const TensorSource& tensor : state->tensors) {
      const std::uint64_t size = tensor.info.size_bytes;
      if (size == 0 || size > kMostTensorBytes) continue;
      std::byte byte{};
      const std::uint64_t element = tensor.info.dtype == DType::opaque ? size : element_size(tensor.info.dtype);
      std::vector<std::byte> last(static_cast<std::size_t>(element), byte);
      EXPECT_TRUE(tensor.read(size - element, last).has_value()) << tensor.info.name;
    }
  }

  template <typename Work>
  std::invoke_result_t<Work> measured(const ContainerExample& file, const std::uint64_t& read_bytes,
                                      const Work& work) const {
    const std::uint64_t size = total_bytes(file);
    const double start = processor_seconds();
    live_bytes = peak_bytes = 0;
    counts_memory = true;
    auto result = work();
    counts_memory = false;
    const double seconds = processor_seconds() - start;
    EXPECT_LE(static_cast<std::uint64_t>(peak_bytes), kMemory.of(size)) << "bytes of memory";
    EXPECT_LE(read_bytes, kFreeReads + examples_->reads_per_byte * size) << "bytes read";
    constexpr double kSlower = kHasSanitizer ? 20 : 1;
    EXPECT_LE(seconds, kSlower * (kFreeSeconds + kSecondsPerMegabyte * static_cast<double>(size) * 1e-6));
    return result;
  }
};

// All proper prefixes.
const auto kCut = [](const std::string& bytes, const auto& visit) {
  for (std::size_t size = 0; size < bytes.size(); ++size) visit(bytes.substr(0, size));
};

// Every bit, or those that are drawn from a larger file, inverted; and two drawn bytes replaced.
const auto kDamage = [](const std::string& bytes, const auto& visit) {
  std::mt19937 random(static_cast<std::uint32_t>(bytes.size()));
  const bool is_small = bytes.size() <= kSmallBytes && !kHasSanitizer;
  const std::size_t flips = is_small ? 8 * bytes.size() : kDraws;
  for (std::size_t i = 0; i < flips && !bytes.empty(); ++i) {
    const std::size_t bit = is_small ? i : random() % (8 * bytes.size());
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1U << bit % 8);
    visit(std::move(damaged));
  }
  for (std::size_t i = 0; i < kDraws / 2 && !bytes.empty(); ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 2; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    visit(std::move(damaged));
  }
};

// Sizes, counts and offsets that no file has: in place of every four and eight bytes, and of every decimal number.
const auto kHugeNumbers = [](const std::string& bytes, const auto& visit) {
  std::vector<std::string> numbers;
  for (const std::size_t width : {4U, 8U}) {
    std::string number(width, '\xff');
    numbers.push_back(number);
    number.back() = '\x7f';
    numbers.push_back(number);
    number.assign(width, '\0');
    number.back() = '\x40';
    numbers.push_back(number);
  }
  const std::size_t step = 1 + (kHasSanitizer ? bytes.size() / 50 : bytes.size() / kSmallBytes);
  for (const std::string& number : numbers) {
    for (std::size_t at = 0; at + number.size() <= bytes.size(); at += step) {
      visit(std::string(bytes).replace(at, number.size(), number));
    }
  }
  constexpr std::string_view kDigits = "0123456789";
  for (std::size_t at = bytes.find_first_of(kDigits); at < bytes.size();) {
    const std::size_t end = std::min(bytes.find_first_not_of(kDigits, at), bytes.size());
    visit(std::string(bytes).replace(at, end - at, std::string(end - at, '9')));
    at = bytes.find_first_of(kDigits, end);
  }
};

const auto kAppended = [](const std::string& bytes, const auto& visit) {
  for (const std::string& more :
       {std::string(1, '\0'), std::string("x"), std::string(32, '\xff'), bytes, std::string(70'000, 'x')}) {
    visit(bytes + more);
  }
};

TEST_P(ContainerConformance, ReadsSoundFiles) {
  std::size_t tensors = 0;
  for (const ContainerExample& file : sound_) {
    ASSERT_LE(file.bytes.size(), 8 * kSmallBytes) << "every byte of it is damaged: make it smaller";
    const MaybeContents contents = read(file);
    ASSERT_TRUE(contents.has_value()) << contents.error().message();
    ASSERT_TRUE(contents->has_value());
    tensors += (*contents)->tensors.size();
    ContainerRecognizer recognizer(
        [&](const std::string& path) -> Result<std::optional<FileBytes>> {
          const auto found = file.beside.find(path);
          if (found == file.beside.end()) return std::optional<FileBytes>();
          return bytes_in_memory(as_byte_span(found->second));
        },
        {});
    const auto recognized = recognizer.recognize(file.path, bytes_in_memory(as_byte_span(file.bytes)));
    ASSERT_TRUE(recognized.has_value()) << recognized.error().message();
    EXPECT_EQ(recognized->container, kind().name);
    EXPECT_EQ(recognized->note, "");
  }
  EXPECT_GT(tensors, 0U);
}

// A file beside it that is cut may still say enough.
TEST_P(ContainerConformance, RefusesEveryTruncation) {
  for (const ContainerExample& file : sound_) {
    for_each_changed(file, kCut, [&](const ContainerExample& cut) {
      SCOPED_TRACE(fmt::format("{} of {} bytes", cut.bytes.size(), file.bytes.size()));
      const MaybeContents contents = read(cut);
      const bool is_refused = !contents || !*contents;
      EXPECT_TRUE(is_refused || file.may_end_early || cut.beside != file.beside) << "it was accepted";
      if (!contents) {
        EXPECT_EQ(contents.error().kind(), examples_->cut.value_or(contents.error().kind()))
            << contents.error().message();
      }
    });
  }
}

TEST_P(ContainerConformance, SurvivesEveryFlippedBit) {
  for (const ContainerExample& file : sound_) {
    for_each_changed(file, kDamage, [&](const ContainerExample& damaged) { static_cast<void>(read(damaged)); });
  }
}

TEST_P(ContainerConformance, SurvivesHugeNumbers) {
  for (const ContainerExample& file : sound_) {
    for_each_changed(file, kHugeNumbers, [&](const ContainerExample& huge) { static_cast<void>(read(huge)); });
  }
}

TEST_P(ContainerConformance, SurvivesAppendedBytes) {
  for (const ContainerExample& file : sound_) {
    for_each_changed(file, kAppended, [&](const ContainerExample& longer) { static_cast<void>(read(longer)); });
  }
}

TEST_P(ContainerConformance, TakesNoMoreForAHostileFileThanItsSizeJustifies) {
  for (const std::size_t bytes : {kFewBytes, 10 * kFewBytes}) {
    std::uint64_t largest = 0;
    for (const ContainerExample& file : examples_->hostile(bytes)) {
      SCOPED_TRACE(fmt::format("{} bytes: {}", total_bytes(file), file.bytes.substr(0, 100)));
      static_cast<void>(read(file));
      largest = std::max(largest, total_bytes(file));
    }
    EXPECT_GE(largest, bytes / 2);
  }
}

// The bytes of all files below a folder, by path.
std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files.emplace(fs::relative(entry.path(), folder).string(), std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return files;
}

void write_file(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// Folder, snapshot, folder: whatever the bytes of the files are, and whatever a parser takes them for.
TEST_P(ContainerConformance, FilesComeBackBitForBitWhateverTheyHold) {
  const os::TemporaryDirectory directory;
  const std::string folder = directory / "in";
  std::size_t files = 0;
  const auto add = [&](const ContainerExample& file) {
    const std::string below = fmt::format("{}/{}/", folder, files++);
    write_file(below + file.path, file.bytes);
    for (const auto& [path, bytes] : file.beside) write_file(below + path, bytes);
  };
  // A sample of all that the other tests read.
  for (const ContainerExample& file : sound_) {
    add(file);
    std::size_t number = 0;
    const auto add_some = [&](const ContainerExample& changed) {
      const bool is_drawn = number++ % kLawStep == 0;
      if (is_drawn) add(changed);
    };
    for_each_changed(file, kAppended, add_some);
    for_each_changed(file, kCut, add_some);
    for_each_changed(file, kDamage, add_some);
    for_each_changed(file, kHugeNumbers, add_some);
  }
  for (const ContainerExample& file : examples_->hostile(kFewBytes)) add(file);

  const auto state = open_folder(folder);
  ASSERT_TRUE(state.has_value()) << state.error().message();
  const auto saved = save_snapshot(directory / "x.bsnap", state->state);
  ASSERT_TRUE(saved.has_value()) << saved.error().message();
  const auto opened = Folder::open(Snapshot::open(directory / "x.bsnap").value());
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const auto extracted = (*opened)->extract(directory / "out");
  ASSERT_TRUE(extracted.has_value()) << extracted.error().message();
  EXPECT_TRUE(files_below(directory / "out") == files_below(folder));
  EXPECT_GE(std::ranges::count((*opened)->entries(), kind().name,
                               [](const FolderEntry& entry) { return std::string_view(entry.container); }),
            static_cast<std::ptrdiff_t>(sound_.size()));
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ContainerKind& kind : container_kinds()) names.emplace_back(kind.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Formats, ContainerConformance, testing::ValuesIn(format_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(ContainerExamplesTest, EachBelongsToOneRowOfTheTable) {
  std::vector<std::string> registered;
  for (const ContainerExamples& examples : all_container_examples()) registered.emplace_back(examples.format);
  std::vector<std::string> rows = format_names();
  std::ranges::sort(registered);
  std::ranges::sort(rows);
  EXPECT_EQ(registered, rows);
}

}  // namespace
}  // namespace bitsnap::interop
