// SPDX-License-Identifier: BSD-3-Clause
//
// Whose turn it is to connect, where one may at a time.
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cpc/loop/connect_throttle.h"
#include "cpc/loop/progress_thread.h"
#include "test/unit/check_main.h"

namespace fabric::cpc {
namespace {

constexpr ProcessName kSelf{7, 2};

/// A throttle of one turn, on a progress thread.
class Turns {
 public:
  /// All of these ranks are asked for at once, each as often as it stands there; who has had a turn asks `again` times more.
  Turns(const std::vector<std::uint32_t>& ranks, const std::map<std::uint32_t, int>& again = {}) : again_(again) {
    left_ = ranks.size();
    for (const auto& [rank, times] : again) {
      left_ += static_cast<std::size_t>(times);
    }
    ProgressDuties duties;
    duties.set_up = [&](event_base* loop) -> Status {
      throttle_.emplace(loop, 1);
      for (const std::uint32_t rank : ranks) {
        ask(rank);
      }
      return {};
    };
    duties.woken = [] {};
    duties.tear_down = [this] {
      tickets_.clear();
      throttle_.reset();
    };
    thread_ = std::move(ProgressThread::start(std::move(duties)).value());
    done_.get_future().wait();
    thread_.reset();
  }

  /// The ranks in the order of their turns.
  [[nodiscard]] const std::vector<std::uint32_t>& order() const noexcept { return order_; }

 private:
  void ask(std::uint32_t rank) {
    const int number = asked_++;
    tickets_[number] =
        throttle_->ask([this, number, rank] { granted(number, rank); }, nullptr, place_of({kSelf.job, rank}, kSelf));
  }

  void granted(int number, std::uint32_t rank) {
    order_.push_back(rank);
    if (const auto found = again_.find(rank); found != again_.end() && found->second-- > 0) {
      ask(rank);
    }
    tickets_.erase(number);
    if (--left_ == 0) {
      done_.set_value();
    }
  }

  std::map<std::uint32_t, int> again_;
  std::size_t left_ = 0;
  int asked_ = 0;
  std::optional<ConnectThrottle> throttle_;
  std::map<int, std::unique_ptr<ConnectThrottle::Ticket>> tickets_;
  std::vector<std::uint32_t> order_;
  std::promise<void> done_;
  std::unique_ptr<ProgressThread> thread_;
};

}  // namespace

START_TEST(the_next_rank_is_first) {
  const std::vector<std::uint32_t> expected{3, 4, 5, 0, 1};
  ck_assert(Turns({0, 1, 3, 4, 5}).order() == expected);
  ck_assert(Turns({5, 4, 3, 1, 0}).order() == expected);
}
END_TEST

START_TEST(of_one_rank_each_has_a_turn_in_a_round) {
  ck_assert((Turns({0, 0, 3, 3}).order() == std::vector<std::uint32_t>{3, 0, 3, 0}));
  ck_assert((Turns({3, 3, 3}).order() == std::vector<std::uint32_t>{3, 3, 3}));
}
END_TEST

/// Who asks again and again keeps nobody out.
START_TEST(nobody_is_passed_over) {
  const std::vector<std::uint32_t> order = Turns({3, 4, 1}, {{3, 50}, {4, 50}}).order();
  ck_assert_uint_eq(order.size(), 103);
  ck_assert((std::vector(order.begin(), order.begin() + 5) == std::vector<std::uint32_t>{3, 4, 1, 3, 4}));
}
END_TEST

}  // namespace fabric::cpc

int main() {
  using namespace fabric::cpc;
  return fabric::test::run_suite(
      "connect_throttle", {the_next_rank_is_first, of_one_rank_each_has_a_turn_in_a_round, nobody_is_passed_over});
}
