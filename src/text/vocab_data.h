// A vocabulary as plain data: the border between file formats (GGUF, later tokenizer.json) and the
// tokenizer. Nothing is checked here; Tokenizer::create checks everything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace baton::text {

/// What a token is, with GGUF's numbers.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl =
      3,  ///< structure, never text: matched in the input only when special tokens are parsed
  kUserDefined = 4,  ///< text that always matches whole, before all merging (but for runs of spaces
                     ///< in kSpm, see Vocab::space_runs())
  kUnused = 5,
  kByte = 6,  ///< "<0xNN>": one byte
};

/// How words become tokens.
enum class VocabModel : uint8_t {
  kByteBpe,  ///< ranked merges over bytes (GGUF "gpt2")
  kCharBpe,  ///< ranked merges over characters, spaces spelled U+2581, byte fallback (GGUF
             ///< "gemma4")
  kSpm,      ///< scored pieces, spaces spelled U+2581, byte fallback (GGUF "llama")
};

struct VocabData {
  VocabModel model = VocabModel::kByteBpe;
  std::string pre;                  ///< name of the pre-tokeniser; only kByteBpe reads it
  std::vector<std::string> tokens;  ///< [n_tokens], as the file spells them
  std::vector<TokenType> types;     ///< [n_tokens], or empty: all normal
  std::vector<float> scores;        ///< [n_tokens] for kSpm, else unused
  std::vector<std::string> merges;  ///< "left right", best first; for the BPE models

  std::optional<TokenId> bos_id;
  std::optional<TokenId> eos_id;
  std::optional<TokenId> unk_id;
  std::vector<TokenId> end_ids;  ///< further tokens that end a generation (end of turn, of message)

  std::optional<bool> add_bos;  ///< absent: as the model and pre-tokeniser are known to want it
  std::optional<bool> add_eos;  ///< absent: no
  std::optional<bool> add_space_prefix;  ///< absent: yes for kSpm, else no

  std::vector<TokenId> strips_left;   ///< special tokens that swallow white space before them
  std::vector<TokenId> strips_right;  ///< … and after them
};

}  // namespace baton::text
