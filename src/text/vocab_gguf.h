// A vocabulary out of the metadata of a GGUF file (tokenizer.ggml.*).
#pragma once

#include "base/result.h"
#include "format/gguf.h"
#include "text/vocab_data.h"

namespace baton::text {

/// kNotFound or kCorrupt for keys that are missing or of a wrong type, kUnsupported for a
/// `tokenizer.ggml.model` that isn't known; the message names the key. Ids of special tokens that
/// are outside the vocabulary are errors, not ignored.
[[nodiscard]] Result<VocabData> vocab_from_gguf(const format::GgufMetadata& metadata);

}  // namespace baton::text
