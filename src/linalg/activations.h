// Activations as integers, of 15 bits or of 8.
//
// 15 bits (the decode class, and where the prefill class is as it): one float32 scale for a row.
//
//   x[i] ≈ scale * q[i],  scale = max|x| / 16256,  q[i] = x[i] * (16256 / max|x|) rounded to
//   nearest even
//
// 16256 = 127 * 128, so that q splits into two signed bytes, q = 128 * high + low with |high| <=
// 127 and -64 <= low < 64, which byte dot products (VNNI) take as they are. Why not 8 bits: they
// are what makes llama.cpp lose 0.03 nats of mean |Δ log probability| on SmolLM2-135M; 15 bits lose
// 0.001, and reading the weights, not arithmetic, bounds a decode step of few rows. All sums of
// products are exact integers for each group of weights that share a scale, so any kernel that adds
// the groups in order has the same bits.
//
// 8 bits (the prefill class, where it is asked for): of each 32 values a float32 scale, so that an
// outlier costs its 31 neighbours their precision and no other value:
//
//   scale = max|x| / 127,  q[i] = x[i] * (127 / max|x|) rounded to nearest even
//
// One byte product instead of two of 16 bits for four weights, where arithmetic is what bounds many
// rows. A kernel adds for each group of weights, in order, with fma(a, b, c) = a * b + c rounded
// once,
//   acc = fma(float(integer sum of products) * scale of the weights, scale of the block, acc)
// and then, for types with a min,
//   acc = fma(min, scale of the block * float(sum of the 32 integers), acc)
#pragma once

#include <cstdint>

namespace baton::linalg {

inline constexpr int kActivationMax = 127 * 128;
/// Values of a block of activations; the groups of every quantised weight type fit into it.
inline constexpr int kActivationBlock = 32;
/// Rows whose largest value is below this are taken as zero (its inverse would not be finite).
inline constexpr float kSmallestActivation = 0x1p-100F;

/// One row of n values (plain C++). A row with a NaN or an infinity becomes zeros with scale NaN.
void quantize_row(const float* x, int64_t n, int16_t* q, float* scale);

inline constexpr int kByteActivationMax = 127;
/// The kActivationBlock values at x, into q and *scale (plain C++). A block with a NaN or an
/// infinity becomes zeros with scale NaN, one whose largest value is below kSmallestActivation
/// zeros with scale 0.
void quantize_block(const float* x, int8_t* q, float* scale);

}  // namespace baton::linalg
