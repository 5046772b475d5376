#include "linalg/machine_rates.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "linalg/aligned_buffer.h"
#include "linalg/panel_matmul.h"

namespace baton::linalg {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kLineWords = kLineBytes / sizeof(uint64_t);
// The hardware's prefetchers stop at each 4 KiB: this far ahead is on the next page.
constexpr size_t kAheadBytes = 4096;

/// Sums the lines [0, n_lines) of kStreams runs that lie n_lines apart.
template <size_t kStreams, bool kPrefetch>
uint64_t read_lines(const std::byte* from, size_t n_lines) {
  uint64_t sums[kLineWords] = {};
  for (size_t line = 0; line < n_lines; ++line) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* at = from + (stream * n_lines + line) * kLineBytes;
      if constexpr (kPrefetch) __builtin_prefetch(at + kAheadBytes);
      uint64_t words[kLineWords];
      std::memcpy(words, at, kLineBytes);
      for (size_t k = 0; k < kLineWords; ++k) sums[k] += words[k];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

using ReadLines = uint64_t (*)(const std::byte*, size_t);
struct Walk {
  ReadLines read;
  size_t n_streams;
};
constexpr Walk kWalks[] = {{read_lines<1, false>, 1},
                           {read_lines<1, true>, 1},
                           {read_lines<4, false>, 4},
                           {read_lines<4, true>, 4}};

/// Seconds that `n` calls of fn() take.
template <typename Fn>
double seconds_of(const Clock& clock, int64_t n, Fn&& fn) {
  const int64_t start_ns = clock.now_ns();
  for (int64_t i = 0; i < n; ++i) fn();
  return std::max(static_cast<double>(clock.now_ns() - start_ns), 1.0) * 1e-9;
}

double walk_rate(Context& context, std::span<const std::byte> memory, const Clock& clock,
                 const Walk& walk) {
  const auto n_threads = static_cast<size_t>(context.pool.n_threads());
  const size_t n_lines = memory.size() / kLineBytes / n_threads / walk.n_streams;  // of a stream
  const size_t share_bytes = n_lines * walk.n_streams * kLineBytes;
  if (share_bytes == 0) return 0;
  // Small memories several times, so that the pool's start doesn't count.
  constexpr size_t kLeastBytes = size_t{64} << 20;
  const auto n_passes = static_cast<int64_t>(kLeastBytes / (share_bytes * n_threads) + 1);
  const double seconds = seconds_of(clock, 1, [&] {
    context.pool.run([&](int thread) {
      uint64_t sum = 0;
      for (int64_t pass = 0; pass < n_passes; ++pass) {
        const std::byte* from = memory.data() + share_bytes * static_cast<size_t>(thread);
        asm volatile("" : "+r"(from));  // or the compiler reads once
        sum += walk.read(from, n_lines);
      }
      asm volatile("" : : "r"(sum));  // or it reads nothing
    });
  });
  return static_cast<double>(share_bytes * n_threads) * static_cast<double>(n_passes) / seconds;
}

/// Numbers of all sizes about 1, so that the units do honest work.
void fill(std::byte* data, size_t n, bool bf16) {
  uint32_t state = 1;
  for (size_t i = 0; i < n; ++i) {
    state = state * 1664525U + 1013904223U;
    const float value = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (bf16) {
      const auto upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(data + i * sizeof upper, &upper, sizeof upper);
    } else {
      std::memcpy(data + i * sizeof bits, &bits, sizeof bits);
    }
  }
}

/// The operands of one product, for all threads.
struct Operands {
  AlignedBuffer packed;
  AlignedBuffer x;        ///< [n_threads][n_rows, n_in]
  AlignedBuffer y;        ///< [n_threads][n_rows, n_out]
  AlignedBuffer scratch;  ///< [n_threads][scratch_bytes]
};

Result<Operands> make_operands(const PanelMatmul& matmul, const PanelShape& shape,
                               size_t n_threads) {
  constexpr const char* kWhat = "oneDNN's own rate";
  const auto n_x = static_cast<size_t>(shape.n_rows * shape.n_in);
  const auto n_w = static_cast<size_t>(shape.n_in * shape.n_out);
  const auto n_y = static_cast<size_t>(shape.n_rows * shape.n_out);
  Operands out;
  auto rows = AlignedBuffer::create(n_w * sizeof(float), kWhat);
  if (!rows) return tl::unexpected(rows.error());
  const auto make = [&](size_t n_bytes, AlignedBuffer& buffer) -> Status {
    auto made = AlignedBuffer::create(std::max(n_bytes, kLineBytes), kWhat);
    if (!made) return tl::unexpected(made.error());
    buffer = std::move(*made);
    return {};
  };
  const size_t value_bytes = shape.bf16 ? sizeof(uint16_t) : sizeof(float);
  for (auto& [n_bytes, buffer] :
       {std::pair{matmul.packed_bytes(), &out.packed},
        {n_x * value_bytes * n_threads, &out.x},
        {n_y * sizeof(float) * n_threads, &out.y},
        {(matmul.scratch_bytes() + kLineBytes) / kLineBytes * kLineBytes * n_threads,
         &out.scratch}}) {
    if (auto status = make(n_bytes, *buffer); !status) return tl::unexpected(status.error());
  }
  fill(rows->data(), n_w, false);
  fill(out.x.data(), n_x * n_threads, shape.bf16);
  matmul.pack(rows->as<float>(), out.packed.data(), out.scratch.data());
  return out;
}

Result<ProductRate> measure_one(Context& context, const PanelShape& shape, const Clock& clock,
                                double milliseconds) {
  auto matmul = PanelMatmul::create(context.kernels, shape);
  if (!matmul) return tl::unexpected(matmul.error());
  const auto n_threads = static_cast<size_t>(context.pool.n_threads());
  auto operands = make_operands(**matmul, shape, n_threads);
  if (!operands) return tl::unexpected(operands.error());
  const auto run = [&](int64_t n) {
    context.pool.run([&](int thread) {
      const auto share = static_cast<size_t>(thread);
      const Operands& o = *operands;
      PanelMatmul::Runner runner(**matmul, o.scratch.data() + o.scratch.size() / n_threads * share);
      const std::byte* x = o.x.data() + o.x.size() / n_threads * share;
      auto* y = reinterpret_cast<float*>(o.y.data() + o.y.size() / n_threads * share);
      for (int64_t i = 0; i < n; ++i) runner.run(x, o.packed.data(), y);
    });
  };
  run(1);
  const double once = seconds_of(clock, 1, [&] { run(1); });
  const auto n = static_cast<int64_t>(std::clamp(milliseconds * 1e-3 / once + 0.5, 1.0, 1e6));
  const double seconds = seconds_of(clock, 1, [&] { run(n); });
  const double flops = 2.0 * static_cast<double>(shape.n_rows) * static_cast<double>(shape.n_in) *
                       static_cast<double>(shape.n_out);
  return ProductRate{static_cast<double>(n) * static_cast<double>(n_threads) * flops / seconds,
                     shape.n_rows, shape.bf16, (*matmul)->implementation()};
}

}  // namespace

double measure_read_rate(Context& context, std::span<const std::byte> memory, const Clock& clock) {
  double best = 0;
  for (const Walk& walk : kWalks) {
    best = std::max(best, walk_rate(context, memory, clock, walk));
  }
  return best;
}

Result<ProductRate> measure_product_rate(Context& context, const ProductShape& shape,
                                         const Clock& clock, double milliseconds) {
  ProductRate best;
  Error why;
  for (const bool bf16 : {false, true}) {
    for (const int64_t n_rows : {64, 128, 256}) {
      auto rate =
          measure_one(context, {n_rows, shape.n_in, shape.n_out, bf16}, clock, milliseconds);
      if (!rate) {
        why = rate.error();
      } else if (rate->flops_per_s > best.flops_per_s) {
        best = std::move(*rate);
      }
    }
  }
  if (best.flops_per_s == 0) return tl::unexpected(why);
  return best;
}

}  // namespace baton::linalg
