// Fuzzing of encode and decode with three small vocabularies: whatever the bytes, no crash, ids in
// range, no byte lost, and the detokenizer's increments valid and equal to the whole.
//
// Input: byte 0 chooses vocabulary and options, byte 1 how the ids are cut into pieces, the rest is
// the text; the same bytes are also read as ids.
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/test_vocab.h"
#include "text/tokenizer.h"

namespace {

using namespace baton;
using namespace baton::text;

std::unique_ptr<const Tokenizer> make(VocabData data) {
  data.add_space_prefix = false;
  auto tokenizer = Tokenizer::create(std::move(data));
  BATON_CHECK(tokenizer.has_value());
  return std::move(*tokenizer);
}

const Tokenizer& tokenizer(size_t index) {
  static const std::array<std::unique_ptr<const Tokenizer>, 3> all = {
      make(test_byte_bpe()), make(test_spm()), make(test_char_bpe())};
  return *all[index % all.size()];
}

void check_decoding(const Tokenizer& t, std::span<const TokenId> ids, size_t step, bool skip) {
  const DecodeOptions options{.skip_special_tokens = skip, .at_start = true};
  Detokenizer detokenizer(t, options);
  std::string text;
  for (size_t begin = 0; begin < ids.size(); begin += step) {
    const std::string piece =
        detokenizer.push(ids.subspan(begin, std::min(step, ids.size() - begin)));
    BATON_CHECK(is_valid_utf8(piece));
    text += piece;
  }
  text += detokenizer.flush();
  BATON_CHECK(text == t.decode(ids, options));
}

std::string with_spaces(std::string text) {
  for (size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string::npos;) {
    text.replace(at, kSpaceMark.size(), " ");
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const bool byte_level = data[0] % 3 == 0;
  const Tokenizer& t = tokenizer(data[0] % 3);
  const bool parse_special = (data[0] & 64) != 0;
  const bool skip = (data[0] & 128) != 0;
  const size_t step = 1 + data[1] % 7;
  const std::string text(reinterpret_cast<const char*>(data + 2), size - 2);

  const auto ids = t.encode(text, {.add_special = false, .parse_special = parse_special});
  std::string bytes;
  for (const TokenId id : ids) {
    BATON_CHECK(t.contains(id));
    bytes += t.token_bytes(id);
  }
  BATON_CHECK(bytes == (byte_level ? text : with_spaces(text)));
  check_decoding(t, ids, step, skip);

  std::vector<TokenId> random_ids;
  for (const char c : text) random_ids.push_back(static_cast<uint8_t>(c) * 3 - 40);
  check_decoding(t, random_ids, step, skip);
  return 0;
}
