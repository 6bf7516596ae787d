// Steps in the names that frameworks give to checkpoints, and the name that a checkpoint has while it is being deleted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bitsnap::cli {

// The step of "checkpoint-1000", "iter_0001000", "global_step1000", "epoch=0-step=1000.ckpt", "1000" or "1000.pt":
// the last number after step, iter or iteration; else after checkpoint or ckpt; else after epoch; else the name itself
// if it is only a number, apart from an extension. nullopt for other names, among them negative numbers, two numbers
// after checkpoint or ckpt ("checkpoint_3_500": epoch and step, or something else), copies ("checkpoint-500-merged",
// with copy, backup, bak, orig, old, converted, export or exported), and names of unfinished files.
[[nodiscard]] std::optional<std::uint64_t> step_of_name(std::string_view name);

// Whether the name begins with ".", has the word tmp, or ends in .temp, .part, .partial or .incomplete.
[[nodiscard]] bool is_unfinished_name(std::string_view name);

// ".NAME.deleting" beside `path`, which may end in a slash.
[[nodiscard]] std::string deleting_path(const std::string& path);
// "checkpoint-10" for ".checkpoint-10.deleting"; nullopt for other names.
[[nodiscard]] std::optional<std::string> name_of_deleting(std::string_view name);

}  // namespace bitsnap::cli
