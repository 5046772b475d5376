// GPT-2's printable alphabet for bytes: byte-level vocabularies spell each byte as one character.
//
// Source: bytes_to_unicode() of OpenAI's gpt-2 encoder.py: the printable bytes 0x21-0x7E, 0xA1-0xAC
// and 0xAE-0xFF stand for themselves, the other 68 become U+0100 onwards, in order.
#pragma once

#include <string>
#include <string_view>

namespace baton::text {

/// Whether `spelled` has only characters of the alphabet.
[[nodiscard]] bool is_in_alphabet(std::string_view spelled);

/// The bytes that `spelled` stands for. Characters outside the alphabet keep their UTF-8 bytes.
[[nodiscard]] std::string bytes_from_alphabet(std::string_view spelled);

/// How the vocabulary spells `bytes`.
[[nodiscard]] std::string alphabet_from_bytes(std::string_view bytes);

}  // namespace baton::text
