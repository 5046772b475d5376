#include "base/role.h"

namespace baton {

std::string_view name(Role role) {
  switch (role) {
    case Role::kPrefill:
      return "prefill";
    case Role::kDecode:
      return "decode";
    case Role::kBoth:
      break;
  }
  return "both";
}

}  // namespace baton
