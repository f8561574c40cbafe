// SPDX-License-Identifier: BSD-3-Clause
//
// The files that pages of fabric_top are (top_page.h): how a process makes its own, and how others find and read them.
//
// Only their owner may open them. The process holds a lock on its page for as long as it lives: the kernel takes that back however a
// process ends, and a child has none of it. So whoever finds a page without a lock may remove it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/identity.h"
#include "common/base/result.h"
#include "common/base/top_page.h"

namespace fabric::top {

/// Where pages are.
inline constexpr const char* kFolder = "/dev/shm";

/// The page of this process. Whoever makes it publishes; one thread at a time.
class OwnPage {
 public:
  /// Makes a page for the process of this name, in memory that is there then, and shows `first`. The error says why there is none.
  [[nodiscard]] static Result<std::unique_ptr<OwnPage>> make(const std::string& folder, const ProcessName& self,
                                                             const Image& first);
  /// Removes it, in the process that made it.
  ~OwnPage();
  OwnPage(const OwnPage&) = delete;
  OwnPage& operator=(const OwnPage&) = delete;

  /// Shows this from now on. No system call, and nothing to wait for.
  void publish(const Image& image) noexcept { put(*page_, image); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  OwnPage(std::string path, int fd) noexcept;
  [[nodiscard]] Status fill(const Image& first);

  const std::string path_;
  const int fd_;
  const pid_t owner_;
  std::string draft_;  ///< its name until it is one; empty then
  Page* page_ = nullptr;
};

/// A page that somebody has found.
struct FoundPage {
  std::string path;
  uid_t user = 0;                ///< whose it is by its name
  std::unique_ptr<Image> image;  ///< null: it cannot be shown
  std::string why_not;           ///< and why
  bool is_stale = false;         ///< because its process has gone
  pid_t pid = 0;                 ///< of the process, here; 0: it is in another PID namespace
};

/// The pages in a folder of this user, or (`everybodys`, for root) of all.
[[nodiscard]] std::vector<FoundPage> find_pages(const std::string& folder, bool everybodys);
/// Removes one that is stale, if it still is.
void remove_stale(const FoundPage& page) noexcept;

}  // namespace fabric::top
