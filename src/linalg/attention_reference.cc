#include "linalg/attention_reference.h"

#include <algorithm>
#include <cmath>

#include "linalg/parallel.h"
#include "linalg/row_kernels.h"

namespace baton::linalg {
namespace {

/// Keys or values of one kv head of one sequence, positions [0, n), as float32 rows [n][head_dim].
void widen(const KvLayer& layer, const SeqRows& seq, const std::byte* head, int n, float* rows) {
  for (int i = 0; i < n; ++i, rows += layer.head_dim) {
    const BlockId block = seq.blocks[static_cast<size_t>(i / layer.block_tokens)];
    const std::byte* data = head + static_cast<size_t>(block.value) * layer.block_stride_bytes;
    const auto first = static_cast<size_t>(i % layer.block_tokens * layer.head_dim);
    if (layer.type == TensorType::kF32) {
      std::copy_n(reinterpret_cast<const float*>(data) + first, layer.head_dim, rows);
    } else {
      kRowKernelsReference.from_bf16(reinterpret_cast<const uint16_t*>(data) + first,
                                     layer.head_dim, rows);
    }
  }
}

float dot(const float* a, const float* b, int n) {
  float sums[8] = {};
  for (int i = 0; i < n; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  }
  float sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

/// One query of one head; scores [position + 1] is scratch.
struct Query {
  int position;
  const float* q;
  float* scores;
  float* out;
};

void attend(const float* keys, const float* values, const AttentionShape& shape, int head_dim,
            const Query& query) {
  const int begin = shape.window > 0 ? std::max(0, query.position - shape.window + 1) : 0;
  float max = -INFINITY;
  for (int j = begin; j <= query.position; ++j) {
    query.scores[j] = dot(query.q, keys + int64_t{j} * head_dim, head_dim) * shape.scale;
    max = std::max(max, query.scores[j]);
  }
  float sum = 0;
  for (int j = begin; j <= query.position; ++j) {
    query.scores[j] = std::exp(query.scores[j] - max);
    sum += query.scores[j];
  }
  std::fill(query.out, query.out + head_dim, 0.0F);
  for (int j = begin; j <= query.position; ++j) {
    const float weight = query.scores[j] / sum;
    const float* value = values + int64_t{j} * head_dim;
    for (int d = 0; d < head_dim; ++d) query.out[d] += weight * value[d];
  }
}

}  // namespace

void attention_reference(Context& context, const KvLayer& layer, const AttentionShape& shape,
                         std::span<const SeqRows> seqs, ConstRows q, float* out) {
  int64_t end = 0;
  for (const SeqRows& seq : seqs) end = std::max(end, int64_t{seq.begin} + seq.n_rows);
  const int64_t head_values = end * layer.head_dim;
  const int64_t scratch_values = 2 * head_values + end;
  auto* scratch =
      context.workspace.take<float>(static_cast<size_t>(scratch_values * context.pool.n_threads()));
  const size_t head_bytes = static_cast<size_t>(layer.block_tokens * layer.head_dim) *
                            static_cast<size_t>(info(layer.type).block_bytes);
  const int group = shape.n_heads / layer.n_kv_heads;
  const int64_t n_units = static_cast<int64_t>(seqs.size()) * shape.n_heads;
  for_units(context, n_units, true, [&](int thread, int64_t unit) {
    const SeqRows& seq = seqs[static_cast<size_t>(unit / shape.n_heads)];
    const int64_t head = unit % shape.n_heads;
    float* keys = scratch + thread * scratch_values;
    float* values = keys + head_values;
    const std::byte* data = layer.data + static_cast<size_t>(head / group) * head_bytes;
    widen(layer, seq, data, seq.begin + seq.n_rows, keys);
    widen(layer, seq, data + static_cast<size_t>(layer.n_kv_heads) * head_bytes,
          seq.begin + seq.n_rows, values);
    for (int i = 0; i < seq.n_rows; ++i) {
      const int64_t row = seq.first_row + i;
      attend(keys, values, shape, layer.head_dim,
             {seq.begin + i, q.data + row * q.stride + head * layer.head_dim, values + head_values,
              out + (row * shape.n_heads + head) * layer.head_dim});
    }
  });
}

}  // namespace baton::linalg
