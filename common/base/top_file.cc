// SPDX-License-Identifier: BSD-3-Clause
#include "common/base/top_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

namespace fabric::top {

namespace {

constexpr std::string_view kPrefix = "btl_fabric_top.";
constexpr std::string_view kDraft = ".new";
constexpr time_t kDraftSeconds = 60;  ///< a draft becomes a page in much less
constexpr unsigned kMostLooks = 100;

std::string name_of(const ProcessName& self) {
  return std::string(kPrefix) + std::to_string(geteuid()) + '.' + std::to_string(self.job) + '.' +
         std::to_string(self.rank) + '.' + std::to_string(getpid());
}

bool is_draft(std::string_view path) {
  return path.ends_with(kDraft);
}

/// The user of a page, by its name; nothing if it is no page's.
std::optional<uid_t> user_in(std::string_view name) {
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  uid_t user = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), user);
  const bool is_number = error == std::errc() && end != name.data() + name.size() && *end == '.';
  return is_number ? std::optional(user) : std::nullopt;
}

std::string because(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) noexcept
      : fd_(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      (void)close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  const int fd_;
};

/// Who holds the lock on a page: nothing if nobody does, 0 if that process has no number here.
std::optional<pid_t> holder_of(int fd) noexcept {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_GETLK, &lock) != 0) {
    return 0;  // a folder without locks: nothing is known to be stale
  }
  return lock.l_type == F_UNLCK ? std::nullopt : std::optional(std::max(lock.l_pid, 0));
}

/// The whole of it, or as much as there is.
std::vector<std::byte> bytes_of(int fd, std::size_t size) {
  std::vector<std::byte> bytes(size);
  const ssize_t got = pread(fd, bytes.data(), size, 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

/// Nothing, if the file is too short. In both looks of read_image() at it the kernel takes and gives back the memory, so that what is
/// read in between is read in between.
std::optional<Word> sequence_of(int fd) noexcept {
  Word sequence = 0;
  const ssize_t got = pread(fd, &sequence, sizeof sequence, offsetof(Page, sequence));
  return got == sizeof sequence ? std::optional(sequence) : std::nullopt;
}

/// It is not mapped: who shortens the file meanwhile would end us.
Result<std::unique_ptr<Image>> read_image(int fd) {
  for (unsigned look = 0; look < kMostLooks; ++look) {
    const auto before = sequence_of(fd);
    const std::vector<std::byte> bytes = bytes_of(fd, sizeof(Page) + 1);
    if (!before || (*before % 2 == 0 && sequence_of(fd) == before)) {
      return decode(bytes);
    }
    timespec pause{0, 1'000'000};
    (void)nanosleep(&pause, nullptr);
  }
  return failure("it is half written, and stays so");
}

/// Nothing if it has gone since its name was read.
std::optional<FoundPage> look_at(std::string path, uid_t user) {
  FoundPage found{.path = std::move(path), .user = user, .image = nullptr, .why_not = {}, .is_stale = false, .pid = 0};
  const auto refused = [&](std::string why) {
    found.why_not = std::move(why);
    return std::move(found);
  };
  const Descriptor file(found.path);
  if (file.get() < 0 && errno == ENOENT) {
    return std::nullopt;
  }
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    return refused(errno == ELOOP ? "it is a symbolic link" : because("it cannot be opened"));
  }
  if (!S_ISREG(status.st_mode)) {
    return refused("it is no file");
  }
  if (status.st_uid != user) {
    return refused("it belongs to user " + std::to_string(status.st_uid) + ", and says that it is of user " +
                   std::to_string(user));
  }
  const auto holder = holder_of(file.get());
  if (!holder) {
    found.is_stale = !is_draft(found.path) || std::time(nullptr) - status.st_mtime > kDraftSeconds;
    return refused("its process has gone");
  }
  found.pid = *holder;
  if ((status.st_mode & 077) != 0) {
    return refused("others than its owner may open it");
  }
  auto image = read_image(file.get());
  if (!image) {
    return refused(image.error().text);
  }
  found.image = std::move(*image);
  return found;
}

}  // namespace

OwnPage::OwnPage(std::string path, int fd) noexcept
    : path_(std::move(path)), fd_(fd), owner_(getpid()), draft_(path_ + std::string(kDraft)) {}

Result<std::unique_ptr<OwnPage>> OwnPage::make(const std::string& folder, const ProcessName& self, const Image& first) {
  std::string path = folder + '/' + name_of(self);
  const std::string draft = path + std::string(kDraft);
  int fd = -1;
  for (unsigned attempt = 0; fd < 0 && attempt < 2; ++attempt) {  // one of this number may have been killed there
    fd = open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && (errno != EEXIST || unlink(draft.c_str()) != 0)) {
      break;
    }
  }
  if (fd < 0) {
    return failure(draft + because(" cannot be made"));
  }
  std::unique_ptr<OwnPage> page(new OwnPage(std::move(path), fd));
  if (Status filled = page->fill(first); !filled) {
    return tl::unexpected(filled.error());
  }
  return page;
}

/// Others see it only when all of it is there.
Status OwnPage::fill(const Image& first) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd_, F_SETLK, &lock) != 0) {
    return failure(draft_ + because(" cannot be locked"));
  }
  // All of the memory now: where there is none later, a store would end the process.
  if (const int error = posix_fallocate(fd_, 0, sizeof(Page)); error != 0) {
    return failure(draft_ + ": there is no memory for it: " + std::strerror(error));
  }
  void* const memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) {
    return failure(draft_ + because(" cannot be mapped"));
  }
  page_ = new (memory) Page;
  put(*page_, first);
  if (std::rename(draft_.c_str(), path_.c_str()) != 0) {
    return failure(path_ + because(" cannot be made"));
  }
  draft_.clear();
  return {};
}

OwnPage::~OwnPage() {
  struct stat ours {};
  struct stat named {};
  const std::string& name = draft_.empty() ? path_ : draft_;
  if (getpid() == owner_ && fstat(fd_, &ours) == 0 && lstat(name.c_str(), &named) == 0 && ours.st_dev == named.st_dev &&
      ours.st_ino == named.st_ino) {
    (void)unlink(name.c_str());
  }
  if (page_ != nullptr) {
    (void)munmap(page_, sizeof(Page));
  }
  (void)close(fd_);
}

std::vector<FoundPage> find_pages(const std::string& folder, bool everybodys) {
  std::vector<FoundPage> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    const auto user = user_in(name);
    if (!user || (*user != geteuid() && !everybodys)) {
      continue;
    }
    auto page = look_at(entry->path(), *user);
    if (page && (page->is_stale || !is_draft(name))) {
      found.push_back(std::move(*page));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const FoundPage& one, const FoundPage& other) { return one.path < other.path; });
  return found;
}

void remove_stale(const FoundPage& page) noexcept {
  const Descriptor file(page.path);
  struct stat status {};
  if (page.is_stale && file.get() >= 0 && fstat(file.get(), &status) == 0 && status.st_uid == page.user &&
      !holder_of(file.get())) {
    (void)unlink(page.path.c_str());
  }
}

}  // namespace fabric::top
