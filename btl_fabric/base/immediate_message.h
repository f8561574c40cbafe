// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "btl_fabric/base/opal.h"

namespace fabric {

/// What btl_sendi() is asked to send: a header of the upper layer's, and bytes of the user's.
struct ImmediateMessage {
  opal_convertor_t* convertor;  ///< of the user's bytes
  const void* header;
  std::size_t header_size;
  std::size_t payload_size;
  mca_btl_base_tag_t tag;

  [[nodiscard]] std::size_t size() const noexcept { return header_size + payload_size; }
};

}  // namespace fabric
