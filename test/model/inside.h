// SPDX-License-Identifier: BSD-3-Clause
//
// What a model checker must know of the product's objects beyond what they tell: everything that makes a difference to
// what they do next, for two worlds are the same only if all of that is. The product has no functions for this, so the
// private members are read: an explicit instantiation may name them ([temp.spec.general]).
//
//     FABRIC_OPEN(cpc::Timer, event_);       declares it
//     inside(timer, Timer_event_{})          is it
#pragma once

namespace fabric::model {

template <class Name, auto member>
struct Open {
  friend constexpr auto member_of(Name /*name*/) noexcept { return member; }
};

/// The member of an object that the name stands for.
template <class Object, class Name>
[[nodiscard]] auto& inside(Object& object, Name name) noexcept {
  return object.*member_of(name);
}

}  // namespace fabric::model

// NOLINTBEGIN: a class and an instantiation for every member
#define FABRIC_OPEN(space, owner, member)                       \
  struct owner##_##member {                                     \
    friend constexpr auto member_of(owner##_##member) noexcept; \
  };                                                            \
  template struct Open<owner##_##member, &space::owner::member>
// NOLINTEND
