// The small operations between the matrix products: norms, rotary embedding, activations,
// embedding. All row-wise, float32, and the same bits for a row whatever the batch or the number of
// threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "linalg/kernels.h"
#include "linalg/linear.h"

namespace baton::linalg {

/// y = x / sqrt(mean(x²) + eps) * weight over rows of n: x, y [n_rows, n] (y may be x).
void rms_norm(Context& context, const float* x, const float* weight, float eps, int64_t n_rows,
              int64_t n, float* y);

/// rms_norm in place over each of n_heads groups of head_dim values, rows `stride` apart (q/k
/// norm).
struct HeadRows {
  float* data = nullptr;  ///< row r, head h at data + r * stride + h * head_dim
  int64_t stride = 0;
  int n_heads = 0;
  int head_dim = 0;
};
void rms_norm_heads(Context& context, HeadRows rows, const float* weight, float eps,
                    int64_t n_rows);

/// Which elements of a head form a rotated pair: (2i, 2i+1) or (i, i + n_rot/2).
enum class RopeStyle { kInterleaved, kHalf };

/// cos and sin of every angle position * f_i, i < n_rot/2: [max_positions][n_rot/2] each; computed
/// in double, stored as float32.
class RopeTable {
 public:
  /// `inverse_frequencies` [n_rot/2]: f_i, scaling already applied.
  RopeTable(std::span<const double> inverse_frequencies, int max_positions);
  [[nodiscard]] int n_rot() const { return 2 * n_pairs_; }
  [[nodiscard]] int max_positions() const { return max_positions_; }
  [[nodiscard]] const float* cos(int position) const {
    return cos_.data() + size_t(position) * size_t(n_pairs_);
  }
  [[nodiscard]] const float* sin(int position) const {
    return sin_.data() + size_t(position) * size_t(n_pairs_);
  }

 private:
  int n_pairs_;
  int max_positions_;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

/// Rotates the first n_rot values of each head in place. positions [n_rows].
void rope(Context& context, const RopeTable& table, RopeStyle style, std::span<const int> positions,
          HeadRows rows);

enum class GatedActivation { kSilu, kGeluTanh };
/// gate_up [n_rows, 2 * n] (gate first) → y [n_rows, n] = act(gate) * up.
void gated_activation(Context& context, GatedActivation activation, const float* gate_up,
                      int64_t n_rows, int64_t n, float* y);

/// x += y over n_rows * n values.
void add_in_place(Context& context, float* x, const float* y, int64_t n_rows, int64_t n);

/// Rows `tokens` of the embedding matrix, times `scale` → out [n_tokens, n_in].
void embed(Context& context, const MatrixView& table, std::span<const TokenId> tokens, float scale,
           float* out);

}  // namespace baton::linalg
