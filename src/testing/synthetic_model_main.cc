// synthetic_model OUT.gguf --shape 1.5b|7b|tiny --type q4_0|q4_k|q8_0 [--seed N]: writes a model of
// random weights (synthetic_model.h), as a stand-in for large ones in measurements.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <optional>
#include <vector>

#include "testing/synthetic_model.h"

namespace baton::testing {
namespace {

struct Arguments {
  std::string path;
  const SyntheticShape* shape = nullptr;
  std::optional<TensorType> type;
  uint64_t seed = 1;
};

std::optional<TensorType> type_named(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ4_K, TensorType::kQ8_0}) {
    if (info(type).name == name) return type;
  }
  return std::nullopt;
}

/// False if the command line makes no sense.
bool take(const std::string& flag, const std::string& value, Arguments& out) {
  if (flag == "--shape") return (out.shape = find_synthetic_shape(value)) != nullptr;
  if (flag == "--type") return (out.type = type_named(value)).has_value();
  if (flag != "--seed") return false;
  const char* end = value.data() + value.size();
  const auto parsed = std::from_chars(value.data(), end, out.seed);
  return parsed.ec == std::errc() && parsed.ptr == end;
}

int run(const std::vector<std::string>& words) {
  constexpr const char* kUsage =
      "usage: synthetic_model OUT.gguf --shape 1.5b|7b|tiny --type q4_0|q4_k|q8_0 [--seed N]\n";
  Arguments arguments;
  bool ok = true;
  for (size_t i = 0; ok && i < words.size(); ++i) {
    if (words[i].rfind("--", 0) != 0) {
      ok = arguments.path.empty();
      arguments.path = words[i];
    } else if (ok = i + 1 < words.size(); ok) {
      ok = take(words[i], words[i + 1], arguments);
      ++i;
    }
  }
  if (!ok || arguments.path.empty() || arguments.shape == nullptr || !arguments.type) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const GgufWriter writer = synthetic_model(*arguments.shape, *arguments.type, arguments.seed);
  if (const Status written = writer.write(arguments.path); !written) {
    std::fprintf(stderr, "synthetic_model: %s\n", written.error().message.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace baton::testing

int main(int argc, char** argv) {
  return baton::testing::run(std::vector<std::string>(argv + 1, argv + argc));
}
