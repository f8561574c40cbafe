// SPDX-License-Identifier: BSD-3-Clause
//
// What it costs a process to have thousands of peers, as far as connection set-up goes: a real ConnectionManager with
// its progress thread and sockets, queue pairs that are only numbers, and a second process that plays all the peers.
//   connection_scale [PEERS]...          (100 1000 10000)
// Prints a row for each number of peers and direction: memory of a peer that is known but idle, and of one that is
// connected, on the heap of this process; processor time of both its threads; wall clock. The parts of a peer that the
// fabric component and the device add (endpoint, queue pairs, buffers) are what contrib/bench/wireup measures.
#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "common/ports/process_info.h"
#include "cpc/core/message.h"
#include "cpc/loop/file_descriptor.h"
#include "cpc/manager/connection_manager.h"
#include "cpc/oob/oob_addresses.h"
#include "cpc/registry/registry.h"

namespace {

using namespace fabric;
using namespace fabric::cpc;

constexpr std::uint32_t kJob = 7;
constexpr const char* kQueues = "P,128,256:S,4096,1024:S,65536,128";
constexpr std::size_t kQueueCount = 3;

[[noreturn]] void stop(const char* what) {
  std::perror(what);
  std::exit(1);
}

JobToken token() {
  JobToken made;
  made.fill(std::byte{0x5a});
  return made;
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// ---- The peers: blocking sockets, one at a time

void write_all(int socket, const std::vector<std::byte>& bytes) {
  if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    stop("send");
  }
}

void write_signed(int socket, const MessageKey& key, const Message& message, MessagePlace place) {
  std::vector<std::byte> bytes = encode(message);
  key.sign(bytes, place);
  write_all(socket, bytes);
}

/// The listener's first word; empty when it has closed.
std::optional<MessageKey> read_key(int socket) {
  std::array<std::byte, kHelloBytes> bytes{};
  if (recv(socket, bytes.data(), bytes.size(), MSG_WAITALL) != static_cast<ssize_t>(bytes.size())) {
    return std::nullopt;
  }
  return MessageKey(token(), **decode_hello(bytes));
}

/// Empty when the other side has closed.
std::optional<Message> read_message(int socket) {
  std::array<std::byte, kMaxMessageBytes> bytes{};
  std::size_t size = 0;
  for (;;) {
    const auto header = decode_header(std::span(bytes).first(size));
    if (!header) {
      std::fprintf(stderr, "%s\n", header.error().text.c_str());
      std::exit(1);
    }
    const std::size_t wanted = *header ? (*header)->length : kMessageHeaderBytes;
    if (*header && size >= wanted) {
      return *decode_message(std::span(bytes).first(wanted));
    }
    const ssize_t got = recv(socket, bytes.data() + size, wanted - size, 0);
    if (got <= 0) {
      return std::nullopt;
    }
    size += static_cast<std::size_t>(got);
  }
}

Message ends_of(std::uint32_t rank) {
  Message message;
  message.address.mtu = 3;
  for (std::uint32_t i = 0; i < kQueueCount; ++i) {
    message.ends.push_back({(rank * 4 + i + 1) & 0xffffff, i});
  }
  return message;
}

/// Whoever is asked for answers.
void answer(int listener, std::size_t peers) {
  for (std::size_t i = 0; i < peers; ++i) {
    const FileDescriptor socket(accept(listener, nullptr, nullptr));
    const Nonce nonce = fresh_nonce();
    const auto hello = encode_hello(nonce);
    write_all(socket.get(), {hello.begin(), hello.end()});
    const auto request = read_message(socket.get());
    if (!request) {
      --i;
      continue;
    }
    Message reply = ends_of(request->header.target.rank);
    reply.header = request->header;
    reply.header.type = MessageType::kReply;
    reply.header.by_opener = false;
    std::swap(reply.header.sender, reply.header.target);
    const MessageKey key(token(), nonce);
    write_signed(socket.get(), key, reply, {true, 0});
    if (const auto confirm = read_message(socket.get()); !confirm || confirm->header.type != MessageType::kConfirm) {
      std::fputs("no CONFIRM\n", stderr);
      std::exit(1);
    }
    Message close;
    close.header = reply.header;
    close.header.type = MessageType::kClose;
    close.confirm_read = true;
    write_signed(socket.get(), key, close, {true, 1});
  }
}

/// Everybody asks: a hundred at a time.
void ask(std::uint16_t port, std::size_t peers) {
  constexpr std::size_t kAtOnce = 100;
  for (std::size_t first = 1; first <= peers; first += kAtOnce) {
    std::vector<FileDescriptor> sockets;
    std::vector<MessageKey> keys;
    for (std::size_t rank = first; rank < std::min(first + kAtOnce, peers + 1); ++rank) {
      FileDescriptor& socket = sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = loopback(port);
      if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        stop("connect");
      }
      Message request = ends_of(static_cast<std::uint32_t>(rank));
      request.header.sender = {kJob, static_cast<std::uint32_t>(rank)};
      request.header.target = {kJob, 0};
      request.header.attempt = 1;
      request.header.incarnation = 1;
      request.header.by_opener = true;
      const auto key = read_key(socket.get());
      if (!key) {
        std::fputs("no HELLO\n", stderr);
        std::exit(1);
      }
      write_signed(socket.get(), keys.emplace_back(*key), request, {false, 0});
    }
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      const FileDescriptor& socket = sockets[i];
      auto reply = read_message(socket.get());
      if (!reply || reply->header.type != MessageType::kReply) {
        std::fprintf(stderr, "no REPLY but %s: %s\n", reply ? to_string(reply->header.type) : "the end",
                     reply ? reply->text.c_str() : "");
        std::exit(1);
      }
      Message confirm;
      confirm.header = reply->header;
      confirm.header.type = MessageType::kConfirm;
      confirm.header.by_opener = true;
      std::swap(confirm.header.sender, confirm.header.target);
      write_signed(socket.get(), keys[i], confirm, {false, 1});
      std::byte byte{};
      (void)recv(socket.get(), &byte, 1, 0);  // its CLOSE
    }
  }
}

// ---- The process

class Numbers final : public QueuePairs {
 public:
  Numbers() {
    static std::uint32_t next = 0;
    for (std::size_t i = 0; i < kQueueCount; ++i) {
      ends_.push_back({++next & 0xffffff, 0});
    }
  }
  [[nodiscard]] const std::vector<QueuePairEnd>& ends() const noexcept override { return ends_; }
  [[nodiscard]] std::vector<ibv_qp*> handles() const override { return std::vector<ibv_qp*>(ends_.size()); }
  [[nodiscard]] Status connect(const PortAddress&, const std::vector<QueuePairEnd>&) override { return {}; }
  void flush() noexcept override {}

 private:
  std::vector<QueuePairEnd> ends_;
};

double heap() {
  return static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd);
}
double processor_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/// A peer that the main thread knows: what its modex said, and what an endpoint keeps for connecting to it.
struct Known {
  ProcessInfo info;
  PeerTarget target;
};

class Process {
 public:
  Process() : queues_(*ReceiveQueues::parse(kQueues)) {
    ConnectionSettings settings;
    settings.self = {kJob, 0};
    settings.token = token();
    settings.cpcs = set_of(kOob.kind);
    std::vector<std::unique_ptr<Cpc>> oob;
    oob.push_back(std::make_unique<Oob>(OobSettings()));
    auto started = ConnectionManager::start(
        settings, std::move(oob), [](const PortContext&, const QueueSubset&) -> Result<std::unique_ptr<QueuePairs>> {
          return std::make_unique<Numbers>();
        });
    if (!started) {
      std::fprintf(stderr, "%s\n", started.error().text.c_str());
      std::exit(1);
    }
    manager_ = std::move(*started);
    port_.queues = &queues_;
    port_.subsets = {QueueSubset::all(queues_)};
    port_.address.mtu = 3;
    manager_->add_port(port_);
  }
  [[nodiscard]] std::vector<CpcOffer> offers() const {
    const PortContext* const port = &port_;
    return manager_->offers(std::span(&port, 1));
  }
  void learn(std::size_t peers, const std::vector<std::byte>& blob) {
    if (const auto info = decode_process_info(blob, is_registered); !info) {
      std::fprintf(stderr, "%s\n", info.error().text.c_str());
      std::exit(1);
    }
    for (std::uint32_t rank = 1; rank <= peers; ++rank) {
      auto known = std::make_unique<Known>();
      known->info = *decode_process_info(blob, is_registered);
      known->target = {kOob, known->info.offers[0].blob, token(), true};
      peers_.emplace(ProcessName{kJob, rank}, std::move(known));
    }
  }
  void connect_to_all() {
    for (const auto& [name, known] : peers_) {
      manager_->submit(Connect{{name, 0, 0}, 1, known->target});
    }
  }
  /// Answers what there is, until `peers` are connected, which process `child` plays.
  void run(std::size_t peers, pid_t child) {
    std::size_t connected = 0;
    while (connected < peers) {
      if (!manager_->has_upcalls()) {
        siginfo_t ended{};
        if (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0 &&
            ended.si_status != 0) {
          std::exit(1);  // and it has said why
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        continue;
      }
      for (const Upcall& upcall : manager_->take_upcalls()) {
        if (const auto* post = std::get_if<PostReceives>(&upcall)) {
          manager_->submit(ReceivesPosted{post->key, post->link});
        } else if (const auto* failed = std::get_if<Failed>(&upcall)) {
          std::fprintf(stderr, "%s\n%s\n", failed->reason.c_str(), failed->history.c_str());
          std::exit(1);
        } else if (std::holds_alternative<Connected>(upcall)) {
          ++connected;
        }
      }
    }
  }
  /// All at the same time, as at the end of a job.
  void end_all() {
    for (const auto& [name, known] : peers_) {
      manager_->submit(Close{{name, 0, 0}, 1, "the process has disconnected", false});
    }
    std::size_t ended = 0;
    while (ended < peers_.size()) {
      if (!manager_->has_upcalls()) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      for (const Upcall& upcall : manager_->take_upcalls()) {
        if (const auto* flushing = std::get_if<Flushing>(&upcall)) {
          manager_->submit(Destroy{flushing->key, flushing->link});
          ++ended;
        }
      }
    }
    manager_.reset();  // what was submitted is done
  }

 private:
  ReceiveQueues queues_;
  PortContext port_;
  std::unordered_map<ProcessName, std::unique_ptr<Known>> peers_;
  std::unique_ptr<ConnectionManager> manager_;
};

void measure(std::size_t peers, bool outwards) {
  FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener.get(), 4096) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    stop("listening");
  }
  std::array<int, 2> pipe_ends{};
  if (pipe(pipe_ends.data()) != 0) {
    stop("pipe");
  }
  const pid_t child = fork();  // before there is a thread
  if (child == 0) {
    std::uint16_t port = 0;
    if (read(pipe_ends[0], &port, sizeof port) != sizeof port) {
      _exit(1);
    }
    port == 0 ? answer(listener.get(), peers) : ask(port, peers);
    _exit(0);
  }
  Process process;
  ProcessInfo info;
  info.receive_queues = kQueues;
  info.ports.resize(2);
  info.ports[0].mtu = info.ports[1].mtu = 3;
  info.token = token();
  const std::vector<CpcOffer> own = process.offers();
  const std::vector<std::byte> to_peers =
      encode(OobOffer{ntohs(address.sin_port), 0, decode_oob_offer(own[0].blob)->addresses});
  info.offers = {{kOob.kind, 50, 3, to_peers}};
  const std::vector<std::byte> blob = encode(info);

  const double before = heap();
  process.learn(peers, blob);
  const double idle = heap();
  const auto start = std::chrono::steady_clock::now();
  const double processor = processor_seconds();
  const std::uint16_t port = outwards ? std::uint16_t{0} : decode_oob_offer(own[0].blob)->port_v4;
  if (write(pipe_ends[1], &port, sizeof port) != sizeof port) {
    stop("write");
  }
  if (outwards) {
    process.connect_to_all();
  }
  process.run(peers, child);
  const double used = processor_seconds() - processor;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    std::fprintf(stderr, "the process that plays the peers failed\n");
    std::exit(1);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the last sockets are closed
  const auto n = static_cast<double>(peers);
  const double connected = heap();
  const double until_then = processor_seconds();
  process.end_all();
  std::printf("%6zu  %-4s  %10.0f  %15.0f  %15.1f  %12.1f  %9.1f\n", peers, outwards ? "out" : "in",
              (idle - before) / n, (connected - idle) / n, used / n * 1e6, wall.count() / n * 1e6,
              (processor_seconds() - until_then) / n * 1e6);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> numbers{100, 1000, 10000};
  if (argc > 1) {
    numbers.clear();
    for (int i = 1; i < argc; ++i) {
      numbers.push_back(static_cast<std::size_t>(std::strtoul(argv[i], nullptr, 10)));
    }
  }
  mallopt(M_ARENA_MAX, 1);  // one heap, which mallinfo2 sees
  std::printf("                  idle       connected   processor time      wall clock        end\n");
  std::printf(" peers          bytes  bytes more each      us a connection  us a connection  us of processor\n");
  for (const std::size_t peers : numbers) {
    for (const bool outwards : {true, false}) {
      // In a process of its own: what was freed before would count for less.
      std::fflush(stdout);
      if (const pid_t child = fork(); child == 0) {
        measure(peers, outwards);
        std::fflush(stdout);
        _exit(0);
      } else {
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
          return 1;
        }
      }
    }
  }
  return 0;
}
