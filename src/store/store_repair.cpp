// Repair.
#include "store/store_impl.hpp"
namespace bitsnap {
Result<RepairReport> Store::Impl::repair(const RepairOptions&) { return RepairReport{}; }
namespace store {
Result<RepairReport> repair_store(os::FileSystem&, const std::string&, const RepairOptions&) { return RepairReport{}; }
}  // namespace store
}  // namespace bitsnap
