// SPDX-License-Identifier: BSD-3-Clause
//
// The component as Open MPI loads it, in a process that has no memory left.
#include <dlfcn.h>

#include <cstdlib>
#include <new>

#include "btl_fabric/base/opal.h"
#include "test/unit/check_main.h"

namespace {

bool no_memory = false;  ///< for operator new

}  // namespace

// The program's own, so that it can say no; the component's too.
[[gnu::noinline, gnu::visibility("default")]] void* operator new(std::size_t size) {
  void* const memory = no_memory ? nullptr : std::malloc(size != 0 ? size : 1);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline, gnu::visibility("default")]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline, gnu::visibility("default")]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}

namespace {

/// It steps aside, and the process goes on.
START_TEST(starting_without_memory) {
  void* const library = dlopen(".libs/mca_btl_fabric.so", RTLD_NOW);  // of the build folder, where tests run
  ck_assert_msg(library != nullptr, "%s", dlerror());
  const auto* const component = static_cast<mca_btl_base_component_t*>(dlsym(library, "mca_btl_fabric_component"));
  ck_assert_ptr_nonnull(component);
  int count = -1;
  no_memory = true;
  mca_btl_base_module_t** const modules = component->btl_init(&count, false, false);
  no_memory = false;
  ck_assert_ptr_null(modules);
  ck_assert_int_eq(count, 0);
}
END_TEST

}  // namespace

int main() {
  return fabric::test::run_suite("component: no memory", {starting_without_memory});
}
