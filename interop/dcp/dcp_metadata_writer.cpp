#include "interop/dcp/dcp_metadata_writer.hpp"

#include <string_view>
#include <variant>

#include "interop/pickle/pickle_writer.hpp"
#include "interop/torch_tensors/torch_pickle.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kVersion = "1.0.0";

class DcpMetadataWriter {
 public:
  std::string run(const std::vector<WrittenDcpItem>& items) {
    begin_object(kModule, "Metadata");
    out_.string("state_dict_metadata");
    begin_dict();
    for (const WrittenDcpItem& written : items) {
      out_.string(written.item.name);
      if (written.item.is_tensor) {
        tensor(written);
      } else {
        out_.global(kModule, "BytesStorageMetadata");
        out_.empty_tuple();
        out_.make();
      }
    }
    out_.set_all();
    out_.string("planner_data");
    begin_dict();
    for (const WrittenDcpItem& written : items) {
      out_.string(written.item.name);
      path(written.path);
    }
    out_.set_all();
    out_.string("storage_data");
    begin_dict();
    for (const WrittenDcpItem& written : items) place(written);
    out_.set_all();
    out_.string("version");
    out_.string(kVersion);
    end_object();
    return out_.finish();
  }

 private:
  // An object with its attributes as a dict.
  void begin_object(std::string_view module, std::string_view name) {
    out_.global(module, name);
    out_.empty_tuple();
    out_.make();
    begin_dict();
  }
  void end_object() {
    out_.set_all();
    out_.build();
  }
  void begin_dict() {
    out_.empty_dict();
    out_.mark();
  }

  void tensor(const WrittenDcpItem& written) {
    begin_object(kModule, "TensorStorageMetadata");
    out_.string("properties");
    properties(written.dtype);
    out_.string("size");
    push_size(out_, written.shape);
    out_.string("chunks");
    out_.empty_list();
    out_.mark();
    begin_object(kModule, "ChunkStorageMetadata");
    out_.string("offsets");
    push_size(out_, std::vector<std::uint64_t>(written.shape.size()));
    out_.string("sizes");
    push_size(out_, written.shape);
    end_object();
    out_.append_all();
    end_object();
  }

  // dtype, layout, requires_grad, memory format, pin_memory
  void properties(std::string_view dtype) {
    out_.global(kModule, "TensorProperties");
    out_.empty_tuple();
    out_.make();
    out_.mark();
    out_.global("torch", dtype);
    out_.call("torch.serialization", "_get_layout", [this] { out_.string("torch.strided"); });
    out_.boolean(false);
    out_.call(kModule, "_MEM_FORMAT_ENCODING", [this] { out_.integer(0); });
    out_.boolean(false);
    out_.tuple();
    out_.build();
  }

  void path(const DcpKeys& keys) {
    out_.mark();
    for (const DcpKey& key : keys) {
      if (const auto* name = std::get_if<std::string>(&key)) {
        out_.string(*name);
      } else {
        out_.integer(std::get<std::int64_t>(key));
      }
    }
    out_.tuple();
  }

  // The index of an item, and where its bytes are.
  void place(const WrittenDcpItem& written) {
    begin_object(kModule, "MetadataIndex");
    out_.string("fqn");
    out_.string(written.item.name);
    out_.string("index");
    if (written.item.is_tensor) {
      out_.integer(0);
      out_.string("offset");
      push_size(out_, std::vector<std::uint64_t>(written.shape.size()));
    } else {
      out_.none();
    }
    end_object();
    begin_object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out_.string("relative_path");
    out_.string(written.item.path);
    out_.string("offset");
    out_.integer(static_cast<std::int64_t>(written.item.offset));
    out_.string("length");
    out_.integer(static_cast<std::int64_t>(written.item.bytes));
    end_object();
  }

  PickleWriter out_;
};

}  // namespace

std::string write_dcp_metadata(const std::vector<WrittenDcpItem>& items) { return DcpMetadataWriter().run(items); }

}  // namespace bitsnap::interop
