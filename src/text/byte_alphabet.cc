#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr uint32_t kFirstSubstitute = 0x100;
constexpr size_t kNSubstitutes = 68;

struct Alphabet {
  std::array<uint16_t, 256> char_of_byte{};
  std::array<uint8_t, kNSubstitutes> byte_of_substitute{};
};

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  uint32_t n = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const size_t index = static_cast<size_t>(byte);
    if (is_printable(byte)) {
      alphabet.char_of_byte[index] = static_cast<uint16_t>(byte);
    } else {
      alphabet.char_of_byte[index] = static_cast<uint16_t>(kFirstSubstitute + n);
      alphabet.byte_of_substitute[n++] = static_cast<uint8_t>(byte);
    }
  }
  return alphabet;
}
constexpr Alphabet kAlphabet = make_alphabet();

/// One character of a spelling: its length, and the byte that it stands for or -1.
struct Spelled {
  size_t n_bytes = 0;
  int byte = -1;
};

Spelled first_of(std::string_view spelled) {
  const auto [kind, n] = utf8_step(spelled);
  // The alphabet lies below U+0144: one or two bytes of UTF-8.
  if (kind != Utf8Step::Kind::kChar || n > 2) return {n, -1};
  uint32_t code = static_cast<uint8_t>(spelled[0]);
  if (n == 2) code = (code & 0x1FU) << 6 | (static_cast<uint8_t>(spelled[1]) & 0x3FU);
  if (code < 0x100) return {n, is_printable(static_cast<int>(code)) ? static_cast<int>(code) : -1};
  if (code >= kFirstSubstitute + kNSubstitutes) return {n, -1};
  return {n, kAlphabet.byte_of_substitute[code - kFirstSubstitute]};
}

}  // namespace

bool is_in_alphabet(std::string_view spelled) {
  while (!spelled.empty()) {
    const Spelled first = first_of(spelled);
    if (first.byte < 0) return false;
    spelled.remove_prefix(first.n_bytes);
  }
  return true;
}

std::string bytes_from_alphabet(std::string_view spelled) {
  std::string bytes;
  bytes.reserve(spelled.size());
  while (!spelled.empty()) {
    const Spelled first = first_of(spelled);
    if (first.byte >= 0) {
      bytes += static_cast<char>(first.byte);
    } else {
      bytes += spelled.substr(0, first.n_bytes);
    }
    spelled.remove_prefix(first.n_bytes);
  }
  return bytes;
}

std::string alphabet_from_bytes(std::string_view bytes) {
  std::string spelled;
  spelled.reserve(bytes.size());
  for (const char c : bytes) {
    const uint32_t code = kAlphabet.char_of_byte[static_cast<uint8_t>(c)];
    if (code < 0x80) {
      spelled += static_cast<char>(code);
    } else {
      spelled += static_cast<char>(0xC0U | code >> 6);
      spelled += static_cast<char>(0x80U | (code & 0x3FU));
    }
  }
  return spelled;
}

}  // namespace baton::text
