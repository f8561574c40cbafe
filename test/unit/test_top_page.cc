// SPDX-License-Identifier: BSD-3-Clause
//
// Pages of fabric_top: what is put into one is what others see of it, whole, and as long as its process lives; and what is none is
// refused.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/top_file.h"
#include "test/unit/check_main.h"

namespace fabric::top {
namespace {

constexpr ProcessName kSelf{7, 3};

class Folder {
 public:
  Folder() { ck_assert_ptr_nonnull(mkdtemp(name_)); }
  ~Folder() { std::filesystem::remove_all(name_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string name() const { return name_; }
  /// A name that a page of a user may have.
  [[nodiscard]] std::string page(uid_t user = geteuid()) const {
    return name() + "/btl_fabric_top." + std::to_string(user) + ".7.3.1";
  }

 private:
  char name_[32] = "/tmp/btl_fabric.XXXXXX";
};

/// Another process, which does something and then lives until it is killed: nobody sees the locks that are its own.
class Other {
 public:
  explicit Other(const std::function<void()>& action) {
    int ready[2] = {};
    ck_assert_int_eq(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      action();
      (void)!write(ready[1], "x", 1);
      for (;;) {
        pause();
      }
    }
    char text = 0;
    ck_assert_int_eq(read(ready[0], &text, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Other() { end(); }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;
  void end() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      pid_ = 0;
    }
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

/// All numbers of it are the same.
Image image_of(std::uint64_t number) {
  Image image{};
  image.process.publications = number;
  image.process.ports = 1;
  image.process.peers = image.process.known_peers = kMostPeers;
  image.ports[0].device.set("softhca0");
  for (Peer& peer : image.peers) {
    peer.now.bytes_sent = peer.before.bytes_sent = number;
  }
  return image;
}
bool is_whole(const Image& image) {
  return std::all_of(image.peers.begin(), image.peers.end(), [&](const Peer& peer) {
    return peer.now.bytes_sent == image.process.publications && peer.before.bytes_sent == image.process.publications;
  });
}

std::vector<std::byte> bytes_of(const Page& page) {
  std::vector<std::byte> bytes(sizeof page);
  std::memcpy(bytes.data(), static_cast<const void*>(&page), kHeadSize);
  std::byte* to = bytes.data() + offsetof(Page, words);
  for (const auto& word : page.words) {
    const Word value = word.load(std::memory_order_acquire);
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  }
  return bytes;
}

FoundPage only_page(const Folder& folder, bool everybodys = false) {
  auto pages = find_pages(folder.name(), everybodys);
  ck_assert_uint_eq(pages.size(), 1);
  return std::move(pages[0]);
}

void write_page(const std::string& path, std::size_t size = sizeof(Page), mode_t mode = 0600) {
  const Page page;
  std::ofstream(path).write(reinterpret_cast<const char*>(&page),
                            static_cast<std::streamsize>(std::min(size, sizeof page)));
  ck_assert_int_eq(truncate(path.c_str(), static_cast<off_t>(size)), 0);
  ck_assert_int_eq(chmod(path.c_str(), mode), 0);
}
/// As if its process lived.
void lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR);
  struct flock all {};
  all.l_type = F_WRLCK;
  if (fcntl(fd, F_SETLK, &all) != 0) {
    abort();
  }
}

START_TEST(others_see_what_a_process_shows) {
  const Folder folder;
  Other owner([&] {
    umask(0);
    static auto page = OwnPage::make(folder.name(), kSelf, image_of(1)).value();
    page->publish(image_of(2));
    page->publish(image_of(3));
  });
  const FoundPage found = only_page(folder);
  test::check_text(found.path, folder.name() + "/btl_fabric_top." + std::to_string(geteuid()) + ".7.3." +
                                   std::to_string(owner.pid()));
  struct stat status {};
  ck_assert_int_eq(stat(found.path.c_str(), &status), 0);
  ck_assert_uint_eq(status.st_mode & 07777, 0600);
  ck_assert_msg(found.image != nullptr, "%s", found.why_not.c_str());
  ck_assert_int_eq(found.pid, owner.pid());
  ck_assert_uint_eq(found.image->process.publications, 3);
  ck_assert(is_whole(*found.image));
  remove_stale(found);
  ck_assert_uint_eq(find_pages(folder.name(), true).size(), 1);  // it is not stale

  owner.end();
  const FoundPage stale = only_page(folder);
  ck_assert(stale.is_stale && stale.image == nullptr);
  remove_stale(stale);
  ck_assert(std::filesystem::is_empty(folder.name()));
}
END_TEST

START_TEST(a_page_goes_with_its_process) {
  const Folder folder;
  auto page = OwnPage::make(folder.name(), kSelf, image_of(1)).value();
  const std::string path = page->path();
  ck_assert(std::filesystem::exists(path));
  const pid_t child = fork();  // has no part in it, and leaves it where it is
  if (child == 0) {
    page.reset();
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  ck_assert(std::filesystem::exists(path));
  page.reset();
  ck_assert(std::filesystem::is_empty(folder.name()));
}
END_TEST

START_TEST(a_child_that_lives_on_does_not_keep_a_page) {
  const Folder folder;
  int child[2] = {};
  ck_assert_int_eq(pipe(child), 0);
  Other owner([&] {
    static auto page = OwnPage::make(folder.name(), kSelf, image_of(1)).value();
    const pid_t pid = fork();
    if (pid == 0) {
      for (;;) {
        pause();
      }
    }
    (void)!write(child[1], &pid, sizeof pid);
  });
  pid_t pid = 0;
  ck_assert_int_eq(read(child[0], &pid, sizeof pid), sizeof pid);
  ck_assert_ptr_nonnull(only_page(folder).image.get());
  owner.end();
  ck_assert(only_page(folder).is_stale);
  kill(pid, SIGKILL);
}
END_TEST

/// Of one that was killed before it could give its page the name, and of one of the same number that was killed after.
START_TEST(what_was_left_is_in_nobodys_way) {
  const Folder folder;
  const std::string path =
      folder.name() + "/btl_fabric_top." + std::to_string(geteuid()) + ".7.3." + std::to_string(getpid());
  write_page(path);
  write_page(path + ".new");
  const auto page = OwnPage::make(folder.name(), kSelf, image_of(1));
  ck_assert_msg(page.has_value(), "%s", page ? "" : page.error().text.c_str());
  ck_assert(!std::filesystem::exists(path + ".new"));

  write_page(folder.page() + ".new");  // may be about to become one
  for (const FoundPage& found : find_pages(folder.name(), false)) {
    ck_assert(!found.path.ends_with(".new"));
  }
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  ck_assert_int_eq(utimensat(AT_FDCWD, (folder.page() + ".new").c_str(), long_ago, 0), 0);
  bool is_found = false;
  for (const FoundPage& found : find_pages(folder.name(), false)) {
    is_found = is_found || (found.path.ends_with(".new") && found.is_stale);
  }
  ck_assert(is_found);
}
END_TEST

START_TEST(there_is_no_page_without_a_folder_or_memory) {
  const auto nowhere = OwnPage::make("/nowhere/at/all", kSelf, image_of(1));
  test::check_error_has(nowhere, "cannot be made: No such file or directory");
  const Folder folder;
  struct rlimit none {};
  signal(SIGXFSZ, SIG_IGN);
  none.rlim_max = RLIM_INFINITY;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
  const auto empty = OwnPage::make(folder.name(), kSelf, image_of(1));
  test::check_error_has(empty, "there is no memory for it");
  ck_assert(std::filesystem::is_empty(folder.name()));
}
END_TEST

struct Wrong {
  const char* why;
  void (*make)(const std::string& path);
};
constexpr Wrong kWrong[] = {
    {"it is a symbolic link",
     [](const std::string& path) {
       write_page(path + "x");
       std::filesystem::rename(path + "x", std::filesystem::path(path).parent_path() / "page");
       std::filesystem::create_symlink("page", path);
     }},
    {"it is no file", [](const std::string& path) { std::filesystem::create_directory(path); }},
    {"it is no file", [](const std::string& path) { ck_assert_int_eq(mkfifo(path.c_str(), 0600), 0); }},
    {"others than its owner may open it", [](const std::string& path) { write_page(path, sizeof(Page), 0644); }},
    {"it is no page of btl_fabric", [](const std::string& path) { write_page(path, 0); }},
    {"it is no page of btl_fabric", [](const std::string& path) { write_page(path, kHeadSize - 1); }},
    {"it has 1000 bytes, not", [](const std::string& path) { write_page(path, 1000); }},
    {"bytes, not", [](const std::string& path) { write_page(path, sizeof(Page) + 1); }},
    {"it is half written",
     [](const std::string& path) {
       write_page(path);
       std::fstream file(path);
       file.seekp(offsetof(Page, sequence)).put(1);
     }},
    {"it belongs to another version of btl_fabric",
     [](const std::string& path) {
       write_page(path);
       std::fstream file(path);
       file.seekp(offsetof(Page, version)).put(static_cast<char>(Page::kVersion + 1));
     }},
};
START_TEST(what_is_no_page_is_not_shown) {
  const Folder folder;
  const Wrong& wrong = kWrong[_i];
  wrong.make(folder.page());
  const std::filesystem::path path(folder.page());
  const Other owner([&] {
    if (std::filesystem::is_regular_file(path)) {
      lock(path);
    }
  });
  const FoundPage found = only_page(folder);
  ck_assert_ptr_null(found.image.get());
  ck_assert(!found.is_stale);
  test::check_text_has(found.why_not, wrong.why);
}
END_TEST

START_TEST(names_of_others_are_passed_over) {
  const Folder folder;
  for (const char* const name : {"btl_fabric_top.", "btl_fabric_top.x.1.2.3", "btl_fabric_top.0", "vader_segment"}) {
    write_page(folder.name() + '/' + name);
  }
  write_page(folder.page(geteuid() + 1));
  ck_assert_uint_eq(find_pages(folder.name(), false).size(), 0);
  ck_assert_uint_eq(find_pages("/nowhere/at/all", true).size(), 0);
  // For root, whose it says it is must be true.
  const FoundPage found = only_page(folder, true);
  test::check_text_has(found.why_not, "it belongs to user " + std::to_string(geteuid()));
  ck_assert(!found.is_stale);
}
END_TEST

/// A job that ends while somebody looks is nothing to complain of.
START_TEST(pages_that_go_meanwhile_are_passed_over) {
  const Folder folder;
  std::atomic<bool> is_over = false;
  std::thread comes_and_goes([&] {
    for (unsigned i = 0; !is_over.load(); ++i) {
      const std::string path = folder.page() + std::to_string(i % 8);
      std::ofstream(path).put('x');
      std::remove((folder.page() + std::to_string((i + 4) % 8)).c_str());
    }
  });
  std::string gone;
  for (std::size_t seen = 0; seen < 20'000 && gone.empty();) {
    for (const FoundPage& page : find_pages(folder.name(), false)) {
      gone = page.why_not.find("No such file") != std::string::npos ? page.why_not : gone;
      ++seen;
    }
  }
  is_over.store(true);
  comes_and_goes.join();
  test::check_text(gone, "");
}
END_TEST

START_TEST(numbers_that_cannot_be_are_refused) {
  const auto refused = [](void (*spoil)(Image&), const char* why) {
    Image image = image_of(1);
    spoil(image);
    const auto page = std::make_unique<Page>();
    put(*page, image);
    test::check_error_has(decode(bytes_of(*page)), why);
  };
  refused([](Image& image) { image.process.ports = kMostPorts + 1; }, "it says that it has 65 ports");
  refused([](Image& image) { image.process.counters = 0xffffffff; }, "4294967295 counters");
  refused([](Image& image) { image.process.peers = image.process.known_peers = kMostPeers + 1; }, "65 of 65 peers");
  refused([](Image& image) { image.process.known_peers = 1; }, "64 of 1 peers");
  refused([](Image& image) { image.peers[kMostPeers - 1].port = 1; }, "it has a peer at port 1 of 1");
  refused([](Image& image) { image.process.ports = 0; }, "at port 0 of 0");
}
END_TEST

START_TEST(text_is_cut_and_safe_to_print) {
  Text<4> text;
  text.set("abcdefg");
  test::check_text(text.get(), "abcd");
  text.set("a\n\xff\x1b");
  test::check_text(text.get(), "a???");
  text.set("ab");
  test::check_text(text.get(), "ab");
}
END_TEST

/// With threads, for ThreadSanitizer too.
START_TEST(a_reader_sees_whole_images) {
  const auto page = std::make_unique<Page>();
  put(*page, image_of(0));
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (std::uint64_t number = 1; !stop; ++number) {
      put(*page, image_of(number));
    }
  });
  std::uint64_t last = 0;
  bool is_good = true;
  for (unsigned whole = 0; whole < 200;) {
    const Word before = page->sequence.load(std::memory_order_acquire);
    const auto bytes = bytes_of(*page);
    if (before % 2 != 0 || page->sequence.load(std::memory_order_relaxed) != before) {
      std::this_thread::yield();
      continue;
    }
    const auto image = decode(bytes);
    is_good = is_good && image && is_whole(**image) && (*image)->process.publications >= last;
    last = image ? (*image)->process.publications : last;
    ++whole;
  }
  stop = true;
  writer.join();
  ck_assert(is_good);
}
END_TEST

/// The way that fabric_top reads it, while its process does nothing but write.
START_TEST(another_process_sees_whole_images) {
  const Folder folder;
  const Other owner([&] {
    static auto page = OwnPage::make(folder.name(), kSelf, image_of(0)).value();
    static std::thread writer([] {
      for (std::uint64_t number = 1;; ++number) {
        page->publish(image_of(number));
        if (number % 8 == 0) {
          usleep(100);
        }
      }
    });
  });
  unsigned whole = 0;
  for (unsigned look = 0; look < 200 || whole == 0; ++look) {
    const FoundPage found = only_page(folder);
    if (found.image != nullptr) {
      ck_assert(is_whole(*found.image));
      ++whole;
    }
  }
}
END_TEST

}  // namespace
}  // namespace fabric::top

int main() {
  using namespace fabric::top;
  using fabric::test::run_suite;
  return run_suite("top_page", {others_see_what_a_process_shows,
                                a_page_goes_with_its_process,
                                a_child_that_lives_on_does_not_keep_a_page,
                                what_was_left_is_in_nobodys_way,
                                there_is_no_page_without_a_folder_or_memory,
                                {what_is_no_page_is_not_shown, static_cast<int>(std::size(kWrong))},
                                names_of_others_are_passed_over,
                                pages_that_go_meanwhile_are_passed_over,
                                numbers_that_cannot_be_are_refused,
                                text_is_cut_and_safe_to_print,
                                a_reader_sees_whole_images,
                                another_process_sees_whole_images});
}
