// What the frontend tells about the model and checks requests against.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace baton::frontend {

struct ModelCard {
  std::vector<std::string> names;  ///< at least one; the first is the one responses carry
  int max_model_len = 0;           ///< context in tokens, prompt and output together
  int n_vocab = 0;
  std::vector<TokenId> eos_ids;
  std::string fingerprint;  ///< system_fingerprint of responses
  int64_t created_s = 0;    ///< Unix time shown in /v1/models

  [[nodiscard]] bool has_name(std::string_view name) const {
    for (const std::string& one : names) {
      if (one == name) return true;
    }
    return false;
  }
};

}  // namespace baton::frontend
