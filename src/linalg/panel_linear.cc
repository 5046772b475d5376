#include "linalg/panel_linear.h"

#include <algorithm>
#include <cstring>

#include "linalg/packed_file.h"
#include "linalg/panel_matmul.h"
#include "linalg/parallel.h"
#include "linalg/row_kernels.h"

namespace baton::linalg {
namespace {

/// How a kernel set multiplies. With matrix units (AMX) in bf16. Without them bf16 products are
/// half as fast as float32 ones (measured on Emerald Rapids: vdpbf16ps issues every other cycle,
/// fma twice a cycle: 88 against 165 GFLOP/s), so a tile of bf16 weights is widened into the
/// second-level cache and multiplied in float32, exactly; the memory still holds and streams bf16.
struct Arithmetic {
  bool bf16;
  int64_t panel_rows;
  int64_t max_tile;  ///< outputs; 128 × 1536 float32 are 0.8 MB, with the panel half of the cache
};

Arithmetic arithmetic(KernelSet kernels) {
  return kernels == KernelSet::kAmx ? Arithmetic{true, 128, 256} : Arithmetic{false, 64, 128};
}

/// The widest tile of 64, 128, … outputs that leaves no part of the last tile empty (but for
/// n_out's own remainder of 64).
int64_t tile_outputs(int64_t n_out, int64_t max_tile) {
  const int64_t n_columns = (n_out + 63) / 64 * 64;
  int64_t tile = max_tile;
  while (n_columns % tile != 0) tile -= 64;
  return tile;
}

size_t round_up_64(size_t n_bytes) { return (n_bytes + 63) / 64 * 64; }

class PanelLinear final : public Linear {
 public:
  struct Parts {
    Arithmetic arithmetic;
    int64_t n_in;
    int64_t n_out;
    int64_t tile;
    std::unique_ptr<PanelMatmul> matmul;
    PackedBytes weights;
  };
  explicit PanelLinear(Parts parts) : p_(std::move(parts)) {}

  void apply(Context& context, const float* x, int64_t n_rows, float* y) const override;
  [[nodiscard]] int64_t n_in() const override { return p_.n_in; }
  [[nodiscard]] int64_t n_out() const override { return p_.n_out; }
  [[nodiscard]] size_t bytes() const override { return p_.weights.size(); }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("onednn {} {}", p_.arithmetic.bf16 ? "bf16" : "f32 on bf16 weights",
                       p_.matmul->implementation());
  }

  /// Bytes of one stored tile.
  [[nodiscard]] static size_t stored_bytes(const Arithmetic& arithmetic,
                                           const PanelMatmul& matmul) {
    return round_up_64(arithmetic.bf16 ? matmul.packed_bytes() : matmul.packed_bytes() / 2);
  }

 private:
  /// The rows of a call as panels in the type that is multiplied.
  struct Panels {
    const std::byte* x;     ///< panel p at x + p * panel_bytes, but
    const std::byte* last;  ///< the last one here
    size_t panel_bytes;
    int64_t n;
  };
  Panels make_panels(Context& context, const float* x, int64_t n_rows) const;
  void run_units(Context& context, std::byte* scratch, const Panels& panels, int64_t begin,
                 int64_t end, int64_t n_rows, float* y) const;

  Parts p_;
};

PanelLinear::Panels PanelLinear::make_panels(Context& context, const float* x,
                                             int64_t n_rows) const {
  const int64_t rows = p_.arithmetic.panel_rows;
  const auto values = static_cast<size_t>(rows * p_.n_in);
  const int64_t n = (n_rows + rows - 1) / rows;
  const int64_t n_left = n_rows - (n - 1) * rows;  // rows of the last panel
  if (!p_.arithmetic.bf16) {
    const float* last = x + (n - 1) * rows * p_.n_in;
    if (n_left < rows) {
      auto* padded = context.workspace.take<float>(values);
      std::copy_n(last, n_left * p_.n_in, padded);
      std::fill(padded + n_left * p_.n_in, padded + values, 0.0F);
      last = padded;
    }
    return {reinterpret_cast<const std::byte*>(x), reinterpret_cast<const std::byte*>(last),
            values * sizeof(float), n};
  }
  auto* rounded = context.workspace.take<uint16_t>(values * static_cast<size_t>(n));
  const RowKernels& k = row_kernels(context.kernels);
  for_rows(context, n_rows, p_.n_in,
           [&](int64_t row) { k.to_bf16(x + row * p_.n_in, p_.n_in, rounded + row * p_.n_in); });
  std::fill(rounded + n_rows * p_.n_in, rounded + n * rows * p_.n_in, uint16_t{0});
  const auto* data = reinterpret_cast<const std::byte*>(rounded);
  const size_t panel_bytes = values * sizeof(uint16_t);
  return {data, data + panel_bytes * static_cast<size_t>(n - 1), panel_bytes, n};
}

void PanelLinear::apply(Context& context, const float* x, int64_t n_rows, float* y) const {
  if (n_rows <= 0) return;
  const Workspace::Mark mark = context.workspace.mark();
  const Panels panels = make_panels(context, x, n_rows);
  // Units are (tile, panel), tile after tile: each thread streams its own share of the weights,
  // once.
  const int64_t n_units = (p_.n_out + p_.tile - 1) / p_.tile * panels.n;
  const int64_t n_threads = context.pool.n_threads();
  const size_t thread_bytes =
      round_up_64(p_.matmul->scratch_bytes()) + p_.matmul->packed_bytes() +
      static_cast<size_t>(p_.arithmetic.panel_rows * p_.tile) * sizeof(float);
  auto* scratch =
      context.workspace.take<std::byte>(round_up_64(thread_bytes) * static_cast<size_t>(n_threads));
  context.pool.run([&](int thread) {
    const int64_t begin = n_units * thread / n_threads;
    const int64_t end = n_units * (thread + 1) / n_threads;
    if (begin == end) return;
    run_units(context, scratch + round_up_64(thread_bytes) * static_cast<size_t>(thread), panels,
              begin, end, n_rows, y);
  });
  context.workspace.rewind(mark);
}

void PanelLinear::run_units(Context& context, std::byte* scratch, const Panels& panels,
                            int64_t begin, int64_t end, int64_t n_rows, float* y) const {
  PanelMatmul::Runner runner(*p_.matmul, scratch);
  std::byte* widened = scratch + round_up_64(p_.matmul->scratch_bytes());
  auto* product = reinterpret_cast<float*>(widened + p_.matmul->packed_bytes());
  const size_t tile_bytes = stored_bytes(p_.arithmetic, *p_.matmul);
  const int64_t rows = p_.arithmetic.panel_rows;
  int64_t tile = -1;
  const std::byte* weights = nullptr;
  for (int64_t unit = begin; unit < end; ++unit) {
    if (unit / panels.n != tile) {
      tile = unit / panels.n;
      weights = p_.weights.data() + tile_bytes * static_cast<size_t>(tile);
      if (!p_.arithmetic.bf16) {
        row_kernels(context.kernels)
            .from_bf16(reinterpret_cast<const uint16_t*>(weights),
                       static_cast<int64_t>(p_.matmul->packed_bytes() / sizeof(float)),
                       reinterpret_cast<float*>(widened));
        weights = widened;
      }
    }
    const int64_t panel = unit % panels.n;
    runner.run(panel == panels.n - 1 ? panels.last
                                     : panels.x + panels.panel_bytes * static_cast<size_t>(panel),
               weights, product);
    const int64_t first_output = tile * p_.tile;
    const auto n = static_cast<size_t>(std::min(p_.tile, p_.n_out - first_output));
    for (int64_t r = 0; r < std::min(rows, n_rows - panel * rows); ++r) {
      std::memcpy(y + (panel * rows + r) * p_.n_out + first_output, product + r * p_.tile,
                  n * sizeof(float));
    }
  }
}

/// Dequantises outputs [first, first + n_tile) of the stacked matrices; zeros past their end.
void read_tile(std::span<const MatrixView> stacked, int64_t first, int64_t n_tile, float* rows) {
  const int64_t n_in = stacked.front().n_in;
  int64_t matrix_first = 0;
  int64_t done = 0;
  for (const MatrixView& matrix : stacked) {
    const size_t stride = row_bytes(matrix.type, n_in);
    for (; done < n_tile && first + done < matrix_first + matrix.n_out; ++done) {
      const auto row = static_cast<size_t>(first + done - matrix_first);
      dequantize(matrix.type, matrix.data + row * stride, n_in, rows + done * n_in);
    }
    matrix_first += matrix.n_out;
  }
  std::fill(rows + done * n_in, rows + n_tile * n_in, 0.0F);
}

/// Fills parts.weights, tile by tile over the pool.
void pack_tiles(Context& context, std::span<const MatrixView> stacked, PanelLinear::Parts& parts) {
  const Workspace::Mark mark = context.workspace.mark();
  const PanelMatmul& matmul = *parts.matmul;
  const size_t rows_bytes =
      round_up_64(static_cast<size_t>(parts.tile * parts.n_in) * sizeof(float));
  const size_t packed_bytes = round_up_64(matmul.packed_bytes());
  const size_t thread_bytes = rows_bytes + packed_bytes + round_up_64(matmul.scratch_bytes());
  auto* scratch = context.workspace.take<std::byte>(thread_bytes *
                                                    static_cast<size_t>(context.pool.n_threads()));
  const size_t tile_bytes = PanelLinear::stored_bytes(parts.arithmetic, matmul);
  const int64_t n_tiles = (parts.n_out + parts.tile - 1) / parts.tile;
  for_units(context, n_tiles, true, [&](int thread, int64_t tile) {
    std::byte* mine = scratch + thread_bytes * static_cast<size_t>(thread);
    auto* rows = reinterpret_cast<float*>(mine);
    std::byte* packed = mine + rows_bytes;
    std::byte* stored = parts.weights.data() + tile_bytes * static_cast<size_t>(tile);
    read_tile(stacked, tile * parts.tile, parts.tile, rows);
    matmul.pack(rows, parts.arithmetic.bf16 ? stored : packed, packed + packed_bytes);
    if (!parts.arithmetic.bf16) {
      row_kernels(context.kernels)
          .to_bf16(reinterpret_cast<const float*>(packed),
                   static_cast<int64_t>(matmul.packed_bytes() / sizeof(float)),
                   reinterpret_cast<uint16_t*>(stored));
    }
  });
  context.workspace.rewind(mark);
}

}  // namespace

Result<std::unique_ptr<Linear>> make_panel_linear(Context& context,
                                                  std::span<const MatrixView> stacked,
                                                  PackedFile* file) {
  PanelLinear::Parts parts{};
  parts.arithmetic = arithmetic(context.kernels);
  parts.n_in = stacked.front().n_in;
  for (const MatrixView& matrix : stacked) parts.n_out += matrix.n_out;
  parts.tile = tile_outputs(parts.n_out, parts.arithmetic.max_tile);
  auto matmul = PanelMatmul::create(context.kernels, {parts.arithmetic.panel_rows, parts.n_in,
                                                      parts.tile, parts.arithmetic.bf16});
  if (!matmul) return tl::unexpected(matmul.error());
  parts.matmul = std::move(*matmul);
  const int64_t n_tiles = (parts.n_out + parts.tile - 1) / parts.tile;
  const std::string layout =
      fmt::format("panels {} tile {} {}", parts.arithmetic.bf16 ? "bf16" : "f32", parts.tile,
                  parts.matmul->layout());
  auto weights = take_packed(file, {stacked, layout,
                                    PanelLinear::stored_bytes(parts.arithmetic, *parts.matmul) *
                                        static_cast<size_t>(n_tiles),
                                    "bf16 weights"});
  if (!weights) return tl::unexpected(weights.error());
  parts.weights = std::move(*weights);
  if (!parts.weights.packed()) pack_tiles(context, stacked, parts);
  return std::make_unique<PanelLinear>(std::move(parts));
}

}  // namespace baton::linalg
