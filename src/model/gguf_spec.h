// GGUF metadata → ModelSpec. Private to src/model.
#pragma once

#include "base/result.h"
#include "format/gguf.h"
#include "model/model_spec.h"

namespace baton::model {

/// Everything of the spec that metadata and the shape of the embedding say; rope_freqs.weight is
/// added by the caller. Errors as read_checkpoint's.
[[nodiscard]] Result<ModelSpec> spec_from_gguf(const format::GgufFile& file);

}  // namespace baton::model
