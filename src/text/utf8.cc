#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace baton::text {
namespace {

/// The range that the second byte of a sequence must lie in (table 3-7), and the length.
struct Lead {
  int n_bytes = 0;  ///< 0: no character starts so
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead lead(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

/// Bytes at the start of `bytes` that are ASCII, eight at a time: a lower bound, or all.
size_t ascii_prefix(std::string_view bytes) {
  size_t n = 0;
  while (n + 8 <= bytes.size()) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + n, 8);
    if ((word & 0x8080808080808080U) != 0) break;
    n += 8;
  }
  while (n < bytes.size() && static_cast<uint8_t>(bytes[n]) < 0x80) ++n;
  return n;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  using Kind = Utf8Step::Kind;
  const Lead first = lead(static_cast<uint8_t>(bytes[0]));
  if (first.n_bytes == 0) return {Kind::kInvalid, 1};
  for (int i = 1; i < first.n_bytes; ++i) {
    const size_t n = static_cast<size_t>(i);
    if (n == bytes.size()) return {Kind::kIncomplete, n};
    const uint8_t byte = static_cast<uint8_t>(bytes[n]);
    const uint8_t low = i == 1 ? first.low : 0x80;
    const uint8_t high = i == 1 ? first.high : 0xBF;
    if (byte < low || byte > high) return {Kind::kInvalid, n};
  }
  return {Kind::kChar, static_cast<size_t>(first.n_bytes)};
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t n = ascii_prefix(bytes);
  while (n < bytes.size()) {
    const Utf8Step step = utf8_step(bytes.substr(n));
    if (step.kind != Utf8Step::Kind::kChar) break;
    n += step.n_bytes;
    if (n < bytes.size() && static_cast<uint8_t>(bytes[n]) < 0x80) {
      n += ascii_prefix(bytes.substr(n));
    }
  }
  return n;
}

std::string to_valid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  stream.push(bytes, out);
  stream.flush(out);
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!tail_.empty()) {
    joined = std::move(tail_);
    tail_.clear();
    joined += bytes;
    bytes = joined;
  }
  while (!bytes.empty()) {
    const size_t n_valid = valid_utf8_prefix(bytes);
    out += bytes.substr(0, n_valid);
    bytes.remove_prefix(n_valid);
    if (bytes.empty()) return;
    const Utf8Step step = utf8_step(bytes);
    if (step.kind == Utf8Step::Kind::kIncomplete) {
      tail_ = bytes;
      return;
    }
    out += kReplacement;
    bytes.remove_prefix(step.n_bytes);
  }
}

void Utf8Stream::flush(std::string& out) {
  if (!tail_.empty()) out += kReplacement;
  tail_.clear();
}

}  // namespace baton::text
