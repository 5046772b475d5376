#include "linalg/reference_linear.h"

#include "linalg/aligned_buffer.h"

namespace baton::linalg {
namespace {

// Partial sums of a dot product: lane l adds the products of the inputs i ≡ l (mod 16), so that the
// compiler can use whatever vectors there are without changing the order.
constexpr int kLanes = 16;

float dot(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (int l = 0; i + l < n; ++l) lanes[l] += a[i + l] * b[i + l];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

class ReferenceLinear final : public Linear {
 public:
  ReferenceLinear(AlignedBuffer weights, int64_t n_in, int64_t n_out)
      : weights_(std::move(weights)), n_in_(n_in), n_out_(n_out) {}

  void apply(Context& context, const float* x, int64_t n_rows, float* y) const override {
    context.pool.for_ranges(n_out_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const float* w = weights_.as<float>() + o * n_in_;
        for (int64_t r = 0; r < n_rows; ++r) y[r * n_out_ + o] = dot(x + r * n_in_, w, n_in_);
      }
    });
  }
  [[nodiscard]] int64_t n_in() const override { return n_in_; }
  [[nodiscard]] int64_t n_out() const override { return n_out_; }
  [[nodiscard]] size_t bytes() const override { return weights_.size(); }
  [[nodiscard]] std::string describe() const override { return "reference f32"; }

 private:
  AlignedBuffer weights_;  ///< [n_out][n_in]
  int64_t n_in_;
  int64_t n_out_;
};

}  // namespace

Result<std::unique_ptr<Linear>> make_reference_linear(Context& context,
                                                      std::span<const MatrixView> stacked) {
  const int64_t n_in = stacked.front().n_in;
  int64_t n_out = 0;
  for (const MatrixView& matrix : stacked) n_out += matrix.n_out;
  auto weights = AlignedBuffer::create(
      static_cast<size_t>(n_out) * static_cast<size_t>(n_in) * sizeof(float), "float32 weights");
  if (!weights) return tl::unexpected(weights.error());
  float* rows = weights->as<float>();
  for (const MatrixView& matrix : stacked) {
    const size_t stride = row_bytes(matrix.type, n_in);
    context.pool.for_ranges(matrix.n_out, 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        dequantize(matrix.type, matrix.data + static_cast<size_t>(o) * stride, n_in,
                   rows + o * n_in);
      }
    });
    rows += matrix.n_out * n_in;
  }
  return std::make_unique<ReferenceLinear>(std::move(*weights), n_in, n_out);
}

}  // namespace baton::linalg
