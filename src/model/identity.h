// What KV depends on, as a short text: engines whose texts are equal may use each other's KV.
#pragma once

#include <string>

#include "linalg/kernels.h"
#include "model/checkpoint.h"

namespace baton::model {

/// "llama 'SmolLM2 135M' 0123456789abcdef, avx512 kernels", and where the prefill class has others
/// than usual ", int8 prefill activations". The number is a hash (XXH3 64) of
/// everything in the ModelSpec that a forward pass uses, of the names, types and shapes of all
/// tensors, and of a sample of their bytes (all of a small tensor, pieces spread over a large one:
/// another fine-tune differs everywhere, and reading a sample takes milliseconds). The kernel set
/// and the activations are part of it because the bits of the prefill class depend on them.
[[nodiscard]] std::string kv_identity(
    const Checkpoint& checkpoint, linalg::KernelSet kernels,
    linalg::ActivationType prefill = linalg::ActivationType::kInt16);

}  // namespace baton::model
