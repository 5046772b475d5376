#include "linalg/portable_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "linalg/activations.h"
#include "linalg/aligned_buffer.h"
#include "linalg/block_codec.h"

namespace baton::linalg {
namespace {

/// The rows of a call. Quantised types read q and what follows, float types x.
struct Activations {
  const float* x;  ///< [n_rows][n_in]
  int16_t* q;      ///< [n_rows][n_in]
  float* sums;     ///< [n_rows][n_blocks]: of each 32 integers; kInt8: times their scale
  float* scales;   ///< [n_rows]; kInt8: [n_rows][n_blocks]
  int64_t n_rows;
  int64_t n_in;
  ActivationType type;
};

/// Outputs that a thread unpacks before it turns to the rows: a row is then read from memory, and a
/// cache line of y written, once for all of them.
constexpr int kChunk = 16;

/// One output's weights, unpacked once for all rows of a call: scratch of one thread.
struct Unpacked {
  float* values;   ///< [n_in], float types
  int16_t* codes;  ///< [n_in]
  float* scales;   ///< [n_groups]
  float* mins;     ///< [n_groups]
};

/// Output `w` of row r. `group_values` is that of the type.
using DotFunction = float (*)(const Unpacked& w, const Activations& rows, int64_t r,
                              int group_values);

/// One of the stacked matrices: its rows as in the file.
struct Segment {
  TensorType type;
  CodeInfo code;  ///< group_values 0: a float type
  DotFunction dot;
  DotFunction byte_dot;  ///< on activations of 8 bits
  int64_t first_out;
  const std::byte* rows;
  size_t stride_bytes;
};

// Exact: 32 products of 15-bit integers and 8-bit codes stay below 2^31.
int32_t dot(const int16_t* a, const int16_t* b, int n) {
  int32_t sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<int32_t>(a[i]) * static_cast<int32_t>(b[i]);
  return sum;
}

// The order of the float operations is the contract with the AVX-512 kernels.
template <bool kHasMin>
float dot_groups_of_32(const Unpacked& w, const Activations& rows, int64_t r, int) {
  const int16_t* q = rows.q + r * rows.n_in;
  const float* sums = rows.sums + r * (rows.n_in / kActivationBlock);
  float acc = 0.0F;
  for (int64_t g = 0; g < rows.n_in / 32; ++g) {
    acc += static_cast<float>(dot(w.codes + 32 * g, q + 32 * g, 32)) * w.scales[g];
    if constexpr (kHasMin) acc += w.mins[g] * sums[g];
  }
  return acc * rows.scales[r];
}

// `n` is 16, but no constant to the compiler: g++ would make 16 scalar products of it, not vectors.
float dot_groups_of_16(const Unpacked& w, const Activations& rows, int64_t r, int n) {
  const int16_t* q = rows.q + r * rows.n_in;
  float acc = 0.0F;
  for (int64_t g = 0; g < rows.n_in / 16; ++g) {
    acc += static_cast<float>(dot(w.codes + 16 * g, q + 16 * g, n)) * w.scales[g];
  }
  return acc * rows.scales[r];
}

// The order of the float operations is that of activations.h, as in the AVX-512 kernels.
template <bool kHasMin>
float byte_dot_groups_of_32(const Unpacked& w, const Activations& rows, int64_t r, int) {
  const int64_t n_blocks = rows.n_in / kActivationBlock;
  const int16_t* q = rows.q + r * rows.n_in;
  const float* sums = rows.sums + r * n_blocks;
  const float* scales = rows.scales + r * n_blocks;
  float acc = 0.0F;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const auto sum = static_cast<float>(dot(w.codes + 32 * b, q + 32 * b, 32));
    acc = std::fma(sum * w.scales[b], scales[b], acc);
    if constexpr (kHasMin) acc = std::fma(w.mins[b], sums[b], acc);
  }
  return acc;
}

float byte_dot_groups_of_16(const Unpacked& w, const Activations& rows, int64_t r, int n) {
  const int16_t* q = rows.q + r * rows.n_in;
  const float* scales = rows.scales + r * (rows.n_in / kActivationBlock);
  float acc = 0.0F;
  for (int64_t g = 0; g < rows.n_in / 16; ++g) {
    const auto sum = static_cast<float>(dot(w.codes + 16 * g, q + 16 * g, n));
    acc = std::fma(sum * w.scales[g], scales[g / 2], acc);
  }
  return acc;
}

// Partial sum p adds the products of the inputs i ≡ p (mod 4), in order.
float dot_floats(const Unpacked& unpacked, const Activations& rows, int64_t r, int) {
  const float* w = unpacked.values;
  const float* x = rows.x + r * rows.n_in;
  const int64_t n = rows.n_in;
  float acc[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int p = 0; p < 4; ++p) acc[p] += w[i + p] * x[i + p];
  }
  for (int p = 0; i + p < n; ++p) acc[p] += w[i + p] * x[i + p];
  return (acc[0] + acc[1]) + (acc[2] + acc[3]);
}

DotFunction dot_function(CodeInfo code) {
  if (code.group_values == 0) return dot_floats;
  if (code.group_values == 16) return dot_groups_of_16;
  return code.has_min ? dot_groups_of_32<true> : dot_groups_of_32<false>;
}

DotFunction byte_dot_function(CodeInfo code) {
  if (code.group_values == 0) return dot_floats;
  if (code.group_values == 16) return byte_dot_groups_of_16;
  return code.has_min ? byte_dot_groups_of_32<true> : byte_dot_groups_of_32<false>;
}

void quantize_one(const Activations& rows, int64_t r) {
  const int64_t n_blocks = rows.n_in / kActivationBlock;
  const float* x = rows.x + r * rows.n_in;
  int16_t* q = rows.q + r * rows.n_in;
  float* sums = rows.sums + r * n_blocks;
  const bool int8 = rows.type == ActivationType::kInt8;
  if (!int8) quantize_row(x, rows.n_in, q, rows.scales + r);
  for (int64_t b = 0; b < n_blocks; ++b, x += kActivationBlock, q += kActivationBlock) {
    float scale = 1.0F;
    if (int8) {
      int8_t bytes[kActivationBlock];
      quantize_block(x, bytes, &scale);
      std::copy_n(bytes, kActivationBlock, q);
      rows.scales[r * n_blocks + b] = scale;
    }
    int32_t sum = 0;
    for (int i = 0; i < kActivationBlock; ++i) sum += q[i];
    sums[b] = scale * static_cast<float>(sum);
  }
}

void unpack_row(const Segment& segment, const std::byte* row, int64_t n_in, const Unpacked& w) {
  const TensorTypeInfo& geometry = info(segment.type);
  const int n_groups = geometry.block_values / segment.code.group_values;
  BlockCodes block;
  float* scales = w.scales;
  float* mins = w.mins;
  for (int64_t i = 0; i < n_in; i += geometry.block_values) {
    unpack_block(segment.type, row, block);
    row += geometry.block_bytes;
    for (int c = 0; c < geometry.block_values; ++c) {
      w.codes[i + c] = block.codes[static_cast<size_t>(c)];
    }
    for (int g = 0; g < n_groups; ++g) {
      *scales++ = block.scales[static_cast<size_t>(g)];
      if (segment.code.has_min) *mins++ = block.mins[static_cast<size_t>(g)];
    }
  }
}

class PortableLinear final : public Linear {
 public:
  static Result<std::unique_ptr<Linear>> create(Context& context,
                                                std::span<const MatrixView> stacked);

  void apply(Context& context, const float* x, int64_t n_rows, float* y) const override {
    multiply(context, {x, nullptr, nullptr, nullptr, n_rows, n_in_, ActivationType::kInt16}, y);
  }
  void apply_int8(Context& context, const float* x, int64_t n_rows, float* y) const override {
    multiply(context, {x, nullptr, nullptr, nullptr, n_rows, n_in_, ActivationType::kInt8}, y);
  }
  [[nodiscard]] int64_t n_in() const override { return n_in_; }
  [[nodiscard]] int64_t n_out() const override { return n_out_; }
  [[nodiscard]] size_t bytes() const override { return weights_.size(); }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string describe_int8() const override {
    return describe() + " on int8 activations";
  }

 private:
  void multiply(Context& context, Activations rows, float* y) const;
  void quantize(Context& context, Activations& rows) const;
  void apply_chunk(const Segment& segment, int64_t first, int n, const Activations& rows,
                   const Unpacked* w, float* y) const;

  std::vector<Segment> segments_;
  AlignedBuffer weights_;
  bool any_quantized_ = false;
  int64_t n_in_ = 0;
  int64_t n_out_ = 0;
};

Result<std::unique_ptr<Linear>> PortableLinear::create(Context& context,
                                                       std::span<const MatrixView> stacked) {
  auto linear = std::make_unique<PortableLinear>();
  linear->n_in_ = stacked.front().n_in;
  size_t n_bytes = 0;
  for (const MatrixView& matrix : stacked) {
    n_bytes += row_bytes(matrix.type, matrix.n_in) * static_cast<size_t>(matrix.n_out);
  }
  auto weights = AlignedBuffer::create(n_bytes, "decode weights");
  if (!weights) return tl::unexpected(weights.error());
  linear->weights_ = std::move(*weights);
  std::byte* to = linear->weights_.data();
  for (const MatrixView& matrix : stacked) {
    const size_t stride = row_bytes(matrix.type, matrix.n_in);
    context.pool.for_ranges(matrix.n_out, 1, [&](int64_t begin, int64_t end) {
      std::memcpy(to + static_cast<size_t>(begin) * stride,
                  matrix.data + static_cast<size_t>(begin) * stride,
                  static_cast<size_t>(end - begin) * stride);
    });
    const CodeInfo code = code_info(matrix.type);
    linear->segments_.push_back({matrix.type, code, dot_function(code), byte_dot_function(code),
                                 linear->n_out_, to, stride});
    linear->any_quantized_ |= code.group_values != 0;
    linear->n_out_ += matrix.n_out;
    to += static_cast<size_t>(matrix.n_out) * stride;
  }
  return linear;
}

/// Fills what x is quantised to.
void PortableLinear::quantize(Context& context, Activations& rows) const {
  if (!any_quantized_) return;
  const int64_t n_rows = rows.n_rows;
  const int64_t n_blocks = n_in_ / kActivationBlock;
  const int64_t n_scales = rows.type == ActivationType::kInt8 ? n_rows * n_blocks : n_rows;
  rows.q = context.workspace.take<int16_t>(static_cast<size_t>(n_rows * n_in_));
  rows.sums = context.workspace.take<float>(static_cast<size_t>(n_rows * n_blocks));
  rows.scales = context.workspace.take<float>(static_cast<size_t>(n_scales));
  context.pool.for_ranges(n_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) quantize_one(rows, r);
  });
}

// Outputs [first, first + n) of the stack, all in `segment`.
void PortableLinear::apply_chunk(const Segment& segment, int64_t first, int n,
                                 const Activations& rows, const Unpacked* w, float* y) const {
  const int group_values = segment.code.group_values;
  const DotFunction dot = rows.type == ActivationType::kInt8 ? segment.byte_dot : segment.dot;
  const std::byte* row =
      segment.rows + static_cast<size_t>(first - segment.first_out) * segment.stride_bytes;
  for (int o = 0; o < n; ++o, row += segment.stride_bytes) {
    if (group_values == 0) {
      dequantize(segment.type, row, n_in_, w[o].values);
    } else {
      unpack_row(segment, row, n_in_, w[o]);
    }
  }
  for (int64_t r = 0; r < rows.n_rows; ++r) {
    float* to = y + r * n_out_ + first;
    for (int o = 0; o < n; ++o) to[o] = dot(w[o], rows, r, group_values);
  }
}

void PortableLinear::multiply(Context& context, Activations rows, float* y) const {
  const Workspace::Mark mark = context.workspace.mark();
  quantize(context, rows);
  const int n_threads = context.pool.n_threads();
  const auto n_in = static_cast<size_t>(n_in_);
  const auto n_scratch = static_cast<size_t>(n_threads) * kChunk;
  auto* scratch = context.workspace.take<Unpacked>(n_scratch);
  for (size_t i = 0; i < n_scratch; ++i) {
    scratch[i] = {context.workspace.take<float>(n_in), context.workspace.take<int16_t>(n_in),
                  context.workspace.take<float>(n_in / 16 + 1),
                  context.workspace.take<float>(n_in / 16 + 1)};
  }
  context.pool.run([&](int thread) {
    const int64_t end = n_out_ * (thread + 1) / n_threads;
    size_t s = 0;
    for (int64_t out = n_out_ * thread / n_threads; out < end;) {
      while (s + 1 < segments_.size() && out >= segments_[s + 1].first_out) ++s;
      const int64_t segment_end = s + 1 < segments_.size() ? segments_[s + 1].first_out : n_out_;
      const auto n = static_cast<int>(std::min<int64_t>(kChunk, std::min(end, segment_end) - out));
      apply_chunk(segments_[s], out, n, rows, scratch + thread * kChunk, y);
      out += n;
    }
  });
  context.workspace.rewind(mark);
}

std::string PortableLinear::describe() const {
  std::string types;
  TensorType last{};
  for (const Segment& segment : segments_) {
    if (!types.empty() && segment.type == last) continue;
    types += (types.empty() ? "" : "+") + std::string(info(segment.type).name);
    last = segment.type;
  }
  return "portable " + types;
}

}  // namespace

Result<std::unique_ptr<Linear>> make_portable_linear(Context& context,
                                                     std::span<const MatrixView> stacked) {
  return PortableLinear::create(context, stacked);
}

}  // namespace baton::linalg
