#include "bench/lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace baton::bench {
namespace {

template <typename T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "low-high", or one length.
std::optional<Lengths> parse_uniform(std::string_view text) {
  const size_t dash = text.find('-');
  const auto low = parse<int>(text.substr(0, dash));
  const auto high = dash == text.npos ? low : parse<int>(text.substr(dash + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > kMostTokens) return std::nullopt;
  return Lengths{Lengths::Kind::kUniform, *low, *high, (*low + *high) / 2.0, 0};
}

std::optional<Lengths> parse_lognormal(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) return std::nullopt;
  const auto mean = parse<double>(text.substr(0, colon));
  const auto sigma = parse<double>(text.substr(colon + 1));
  if (!mean || !sigma) return std::nullopt;
  if (!(*mean >= 1 && *mean <= kMostTokens && *sigma >= 0 && *sigma <= 5)) return std::nullopt;
  return Lengths{Lengths::Kind::kLogNormal, 1, kMostTokens, *mean, *sigma};
}

}  // namespace

int Lengths::sample(Random& random) const {
  if (kind == Kind::kUniform) {
    return low + static_cast<int>(random.below(static_cast<uint32_t>(high - low) + 1));
  }
  // exp(N(mu, sigma²)) has the mean exp(mu + sigma² / 2).
  const double mu = std::log(mean) - sigma * sigma / 2;
  const double length = std::round(std::exp(mu + sigma * random.normal()));
  return static_cast<int>(std::clamp(length, double(low), double(high)));
}

Result<Lengths> parse_lengths(std::string_view flag, std::string_view text, double sharegpt_mean) {
  constexpr std::string_view kLogNormal = "lognormal:";
  std::optional<Lengths> out;
  if (text == "sharegpt") {
    out = Lengths{Lengths::Kind::kLogNormal, 1, kMostTokens, sharegpt_mean, 1};
  } else if (text.starts_with(kLogNormal)) {
    out = parse_lognormal(text.substr(kLogNormal.size()));
  } else {
    out = parse_uniform(text);
  }
  if (out) return *out;
  return fail(ErrorCode::kInvalidArgument,
              "{} '{}': use a number of tokens (512), a range (100-800), lognormal:MEAN:SIGMA or "
              "sharegpt",
              flag, text);
}

}  // namespace baton::bench
