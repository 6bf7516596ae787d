// A progress bar on standard error.
#include "cli/output/progress_bar.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>

#include <fmt/format.h>

#include "cli/operating_system.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr auto kBetweenDrawings = std::chrono::milliseconds(100);
constexpr std::size_t kDefaultWidth = 80;
constexpr std::size_t kLargestBar = 40;
constexpr std::size_t kLargestLabel = 40;

std::string format_remaining(double seconds) {
  const auto whole = std::llround(seconds);
  return whole < 60 ? fmt::format("{} s left", whole) : fmt::format("{}:{:02} left", whole / 60, whole % 60);
}

// Not print_note(), which escapes what moves the cursor.
void draw_line(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

ProgressBar::ProgressBar(std::string_view label, bool enabled, Unit unit)
    : label_(printable(label)),
      enabled_(enabled && is_terminal(stderr)),
      unit_(unit),
      start_(Clock::now()),
      last_drawn_(start_) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::clear() {
  const std::scoped_lock lock(mutex_);
  if (drawn_) {
    draw_line("\r\x1b[K");
    drawn_ = false;
  }
}

Progress ProgressBar::callback() {
  return [this](std::uint64_t done_bytes, std::uint64_t total_bytes) { return update(done_bytes, total_bytes); };
}

void ProgressBar::set_label(std::string_view label) {
  const std::scoped_lock lock(mutex_);
  label_ = printable(label);
}

bool ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  if (interrupt_signal() != 0) return false;
  if (enabled_) {
    const std::unique_lock lock(mutex_, std::try_to_lock);  // another thread draws at this moment
    const auto now = Clock::now();
    if (lock.owns_lock() && now - last_drawn_ >= kBetweenDrawings) {
      draw(done, total, now);
      last_drawn_ = now;
    }
  }
  return true;
}

void ProgressBar::draw(std::uint64_t done, std::uint64_t total, Clock::time_point now) {
  if (total == 0) return;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const std::string remaining = share > 0 ? format_remaining(seconds / share - seconds) : "";
  const std::string counts = unit_ == Unit::bytes ? fmt::format("{} / {}  {}  ", format_size(done), format_size(total),
                                                                format_speed(done, seconds))
                                                  : "";
  const std::string right = fmt::format(" {:3.0f} %  {}{}", share * 100, counts, remaining);
  const std::size_t width = terminal_width(stderr).value_or(kDefaultWidth);
  const std::size_t room = width > right.size() + 1 ? width - right.size() - 1 : 0;  // the last column stays free
  const std::string label = elide_middle(label_, std::min(kLargestLabel, room / 2));
  const std::size_t taken = display_width(label) + 3;
  const std::size_t bar = room > taken ? std::min(kLargestBar, room - taken) : 0;
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
  draw_line(fmt::format("\r{} [{}{}]{}\x1b[K", label, std::string(filled, '='), std::string(bar - filled, ' '),
                        elide_end(right, width > taken ? width - taken : 0)));
  drawn_ = true;
}

}  // namespace bitsnap::cli
