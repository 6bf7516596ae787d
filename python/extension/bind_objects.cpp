// Object stores: the library calls a client that Python makes for each bucket, on any of its threads. And the command,
// for which this process has such clients.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/object_store.hpp>

#include "bindings.hpp"
#include "cli/program.hpp"
#include "gil.hpp"
#include "python_error.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

using Found = std::tuple<std::uint64_t, std::string, std::int64_t>;

// The class of Python exceptions for conditions that are not met. Lives as long as the interpreter.
PyObject* refused_class = nullptr;

ObjectInfo info_of(const Found& found) { return {std::get<0>(found), std::get<1>(found), std::get<2>(found)}; }

nb::bytes bytes_of(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }

// Calls `work` with the GIL. What Python raises becomes an error.
template <typename Work>
auto with_python(Work&& work) -> decltype(work()) {
  const GilAcquire gil;
  try {
    return work();
  } catch (nb::python_error& raised) {
    return tl::unexpected(to_error(raised));
  } catch (const nb::cast_error&) {
    return tl::unexpected(Error(ErrorKind::internal, "the client of the object store gave something of another type"));
  }
}

// A Python object that threads without the GIL may destroy.
class Held {
 public:
  explicit Held(nb::object object) : object_(std::move(object)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    const GilAcquire gil;
    object_.reset();
  }

  template <typename... Args>
  nb::object call(const char* method, Args&&... args) const {
    return object_.attr(method)(std::forward<Args>(args)...);
  }

 private:
  nb::object object_;
};

class PyUpload final : public ObjectUpload {
 public:
  explicit PyUpload(nb::object upload) : upload_(std::move(upload)) {}

  Result<void> append(std::span<const std::byte> bytes) override {
    return with_python([&]() -> Result<void> {
      upload_.call("append", bytes_of(bytes));
      return {};
    });
  }
  Result<void> finish() override {
    return with_python([&]() -> Result<void> {
      upload_.call("finish");
      return {};
    });
  }

 private:
  const Held upload_;
};

class PyObjectStore final : public ObjectStore {
 public:
  explicit PyObjectStore(nb::object client) : client_(std::move(client)) {}

  Result<std::optional<ObjectInfo>> find(const std::string& key) override {
    return with_python([&]() -> Result<std::optional<ObjectInfo>> {
      const auto found = nb::cast<std::optional<Found>>(client_.call("find", key));
      return found ? std::optional(info_of(*found)) : std::nullopt;
    });
  }
  Result<ObjectTail> read_tail(const std::string& key, std::uint64_t most_bytes) override {
    return with_python([&]() -> Result<ObjectTail> {
      const nb::object answer = client_.call("read_tail", key, most_bytes);
      const auto bytes = nb::borrow<nb::bytes>(answer[1]);
      const auto* const data = static_cast<const std::byte*>(bytes.data());
      return ObjectTail{info_of(nb::cast<Found>(answer[0])), {data, data + bytes.size()}};
    });
  }
  Result<void> read(const std::string& key, const std::string& version, std::uint64_t offset,
                    std::span<std::byte> out) override {
    return with_python([&]() -> Result<void> {
      auto* const memory = reinterpret_cast<char*>(out.data());
      const nb::object view =
          nb::steal(PyMemoryView_FromMemory(memory, static_cast<Py_ssize_t>(out.size()), PyBUF_WRITE));
      client_.call("read", key, version, offset, view);
      return {};
    });
  }
  Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
    return with_python([&]() -> Result<void> {
      client_.call("put", key, bytes_of(bytes));
      return {};
    });
  }
  Result<std::optional<std::string>> put_if_absent(const std::string& key, std::span<const std::byte> bytes) override {
    return conditional([&] { return client_.call("put_if_absent", key, bytes_of(bytes)); });
  }
  Result<std::optional<std::string>> put_if_version(const std::string& key, std::span<const std::byte> bytes,
                                                    const std::string& version) override {
    return conditional([&] { return client_.call("put_if_version", key, bytes_of(bytes), version); });
  }
  Result<std::unique_ptr<ObjectUpload>> upload(const std::string& key) override {
    return with_python([&]() -> Result<std::unique_ptr<ObjectUpload>> {
      return std::make_unique<PyUpload>(client_.call("upload", key));
    });
  }
  Result<void> copy(const std::string& from, const std::string& to) override {
    return with_python([&]() -> Result<void> {
      client_.call("copy", from, to);
      return {};
    });
  }
  Result<void> remove(const std::string& key) override {
    return with_python([&]() -> Result<void> {
      client_.call("remove", key);
      return {};
    });
  }
  Result<ObjectListing> list(const std::string& prefix, bool is_deep) override {
    return with_python([&]() -> Result<ObjectListing> {
      const nb::object answer = client_.call("list", prefix, is_deep);
      ObjectListing listing;
      for (auto& [key, found] : nb::cast<std::vector<std::tuple<std::string, Found>>>(answer[0])) {
        listing.objects.push_back({std::move(key), info_of(found)});
      }
      listing.prefixes = nb::cast<std::vector<std::string>>(answer[1]);
      return listing;
    });
  }

 private:
  template <typename Call>
  Result<std::optional<std::string>> conditional(Call&& call) {
    return with_python([&]() -> Result<std::optional<std::string>> {
      try {
        return nb::cast<std::string>(call());
      } catch (nb::python_error& raised) {
        if (raised.matches(refused_class)) return std::nullopt;
        throw;
      }
    });
  }

  const Held client_;
};

}  // namespace

void bind_objects(nb::module_& module) {
  module.def(
      "connect_object_stores",
      [](nb::typed<nb::callable, nb::object(std::string)> connect, nb::type_object refused) {
        refused_class = refused.release().ptr();
        auto held = std::make_shared<Held>(nb::object(std::move(connect)));
        connect_object_stores([held](const std::string& bucket) {
          return with_python([&]() -> Result<std::shared_ptr<ObjectStore>> {
            return std::make_shared<PyObjectStore>(held->call("__call__", bucket));
          });
        });
      },
      nb::arg("connect"), nb::arg("refused"));
  module.def(
      "run_command",
      [](const std::vector<std::string>& arguments) {
        std::vector<const char*> pointers;
        for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
        pointers.push_back(nullptr);
        const GilRelease released;
        return cli::run_program(static_cast<int>(arguments.size()), pointers.data(), true);
      },
      nb::arg("arguments"));
}

}  // namespace bitsnap::python
