// The yardstick of the attention kernels. Internal to src/linalg.
#pragma once

#include <span>

#include "linalg/attention.h"

namespace baton::linalg {

/// attention() (arguments as there) as the formula says: all scores of a row, their maximum, their
/// exponentials, the weighted mean of the values; float32.
void attention_reference(Context& context, const KvLayer& layer, const AttentionShape& shape,
                         std::span<const SeqRows> seqs, ConstRows q, float* out);

}  // namespace baton::linalg
