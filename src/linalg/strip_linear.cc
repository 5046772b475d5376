#include "linalg/strip_linear.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "linalg/activations.h"
#include "linalg/packed_file.h"
#include "linalg/tile_pack.h"
#include "linalg/tiles.h"

namespace baton::linalg {
namespace {

/// What kernels subtract or add for each group of activations (StripCall::offsets): one array for
/// each distinct kind that the stack needs.
struct OffsetKind {
  int bias;         ///< 0 = the sums themselves, as float32
  int n_per_block;  ///< groups of a block of 32: 1 or 2
  bool operator==(const OffsetKind&) const = default;
};
constexpr int kMaxOffsetKinds = 5;  // min; bias 8, 16, 128; bias 32 for groups of 16

OffsetKind offset_kind(TileFormat format) {
  return {format.bias, format.scales == ScaleKind::kSuper16 ? 2 : 1};
}

/// One of the stacked matrices.
struct Segment {
  TensorType type;
  StripKernel kernel;
  int64_t n_out;
  int64_t first_out;  ///< in the stack
  int64_t n_strips;
  int64_t strip_bytes;
  int64_t begin_bytes;  ///< in the buffer
  int offsets;          ///< index of its OffsetKind; 0 and unused for a float type
};

/// Up to kMaxPanelRows rows of a call, quantised.
struct Panel {
  ActivationPanel activations;
  void* offsets[kMaxOffsetKinds];  ///< float or int32 [n_blocks][n_rows][n_per_block]
};

struct Call {
  const float* x;
  float* y;
  int64_t n_rows;
  ActivationType activations;
  Panel* panels;  ///< null when all types are float types
};

class StripLinear final : public Linear {
 public:
  explicit StripLinear(const StripKernels& kernels) : kernels_(kernels) {}
  static Result<std::unique_ptr<Linear>> create(Context& context, const StripKernels& kernels,
                                                std::span<const MatrixView> stacked,
                                                PackedFile* file);

  void apply(Context& context, const float* x, int64_t n_rows, float* y) const override {
    multiply(context, {x, y, n_rows, ActivationType::kInt16, nullptr});
  }
  void apply_int8(Context& context, const float* x, int64_t n_rows, float* y) const override {
    BATON_CHECK(kernels_.quantize_blocks != nullptr, "{} has no 8-bit activations", kernels_.name);
    multiply(context, {x, y, n_rows, ActivationType::kInt8, nullptr});
  }
  [[nodiscard]] int64_t n_in() const override { return n_in_; }
  [[nodiscard]] int64_t n_out() const override { return n_out_; }
  [[nodiscard]] size_t bytes() const override { return weights_.size(); }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string describe_int8() const override {
    return describe() + " on int8 activations";
  }

 private:
  void add_segment(const MatrixView& matrix);
  void multiply(Context& context, Call call) const;
  [[nodiscard]] PanelLayout layout(ActivationType activations, int64_t n_rows) const;
  void quantize(Context& context, Call& call) const;
  void quantize_one(const Call& call, int64_t row) const;
  void apply_strips(const Call& call, int64_t first_row, const Segment& segment, int64_t first,
                    int64_t n) const;
  template <typename Fn>
  void for_strips(int thread, int n_threads, Fn&& fn) const;

  const StripKernels& kernels_;
  std::vector<Segment> segments_;
  std::vector<OffsetKind> offset_kinds_;
  PackedBytes weights_;
  int64_t n_bytes_ = 0;
  int64_t n_in_ = 0;
  int64_t n_out_ = 0;
};

void StripLinear::add_segment(const MatrixView& matrix) {
  Segment segment{};
  segment.type = matrix.type;
  segment.kernel = kernels_.kernel(matrix.type);
  segment.n_out = matrix.n_out;
  segment.first_out = n_out_;
  segment.n_strips = (matrix.n_out + kStripOutputs - 1) / kStripOutputs;
  segment.strip_bytes = strip_bytes(matrix.type, n_in_);
  segment.begin_bytes = n_bytes_;
  const TileFormat format = tile_format(matrix.type);
  if (format.bits != 0) {
    const OffsetKind kind = offset_kind(format);
    const auto found = std::find(offset_kinds_.begin(), offset_kinds_.end(), kind);
    segment.offsets = static_cast<int>(found - offset_kinds_.begin());
    if (found == offset_kinds_.end()) offset_kinds_.push_back(kind);
  }
  n_bytes_ += segment.n_strips * segment.strip_bytes;
  n_out_ += matrix.n_out;
  segments_.push_back(segment);
}

Result<std::unique_ptr<Linear>> StripLinear::create(Context& context, const StripKernels& kernels,
                                                    std::span<const MatrixView> stacked,
                                                    PackedFile* file) {
  auto linear = std::make_unique<StripLinear>(kernels);
  linear->n_in_ = stacked.front().n_in;
  for (const MatrixView& matrix : stacked) linear->add_segment(matrix);
  auto weights = take_packed(
      file, {stacked, "strips", static_cast<size_t>(linear->n_bytes_), "decode weights"});
  if (!weights) return tl::unexpected(weights.error());
  linear->weights_ = std::move(*weights);
  if (linear->weights_.packed()) return linear;
  auto* bytes = linear->weights_.as<uint8_t>();
  // Each thread packs the strips that it will read, so that their pages lie near it.
  context.pool.run([&](int thread) {
    linear->for_strips(
        thread, context.pool.n_threads(), [&](const Segment& segment, int64_t first, int64_t n) {
          const auto index = static_cast<size_t>(&segment - linear->segments_.data());
          for (int64_t strip = first; strip < first + n; ++strip) {
            pack_strip(stacked[index], strip * kStripOutputs,
                       bytes + segment.begin_bytes + strip * segment.strip_bytes);
          }
        });
  });
  return linear;
}

// Splits the bytes of all strips evenly: a strip belongs to the thread in whose part it begins.
// fn(segment, first strip, number of strips).
template <typename Fn>
void StripLinear::for_strips(int thread, int n_threads, Fn&& fn) const {
  const int64_t low = n_bytes_ * thread / n_threads;
  const int64_t high = n_bytes_ * (thread + 1) / n_threads;
  for (const Segment& segment : segments_) {
    const auto strip_at = [&](int64_t byte) {
      const int64_t strip =
          (byte - segment.begin_bytes + segment.strip_bytes - 1) / segment.strip_bytes;
      return std::clamp<int64_t>(strip, 0, segment.n_strips);
    };
    const int64_t begin = strip_at(low);
    const int64_t end = strip_at(high);
    if (begin < end) fn(segment, begin, end - begin);
  }
}

/// For one row of `call`: its integers, and what its panel has of their sums.
void StripLinear::quantize_one(const Call& call, int64_t row) const {
  const Panel& panel = call.panels[row / kMaxPanelRows];
  const auto r = static_cast<int>(row % kMaxPanelRows);
  const bool bytes = panel.activations.layout == PanelLayout::kBytes;
  const auto quantize = bytes ? kernels_.quantize_blocks : kernels_.quantize_row;
  quantize(call.x + row * n_in_, n_in_, panel.activations, r);
  const int64_t n_blocks = n_in_ / kActivationBlock;
  const int64_t n_rows = panel.activations.n_rows;
  const int32_t* sums = panel.activations.sums + 2 * r;
  for (size_t k = 0; k < offset_kinds_.size(); ++k) {
    const OffsetKind kind = offset_kinds_[k];
    const int32_t bias = bytes ? -kind.bias : kind.bias;
    auto* floats = static_cast<float*>(panel.offsets[k]);
    auto* integers = static_cast<int32_t*>(panel.offsets[k]);
    for (int64_t b = 0; b < n_blocks; ++b) {
      const int32_t* s = sums + 2 * b * n_rows;
      if (kind.n_per_block == 2) {
        integers[2 * (b * n_rows + r)] = bias * s[0];
        integers[2 * (b * n_rows + r) + 1] = bias * s[1];
      } else if (kind.bias == 0) {
        const float scale = bytes ? panel.activations.scales[b * n_rows + r] : 1.0F;
        floats[b * n_rows + r] = scale * static_cast<float>(s[0] + s[1]);
      } else {
        integers[b * n_rows + r] = bias * (s[0] + s[1]);
      }
    }
  }
}

PanelLayout StripLinear::layout(ActivationType activations, int64_t n_rows) const {
  if (activations == ActivationType::kInt8) return PanelLayout::kBytes;
  return n_rows >= kernels_.min_word_rows ? PanelLayout::kWords : PanelLayout::kPlanes;
}

void StripLinear::quantize(Context& context, Call& call) const {
  // Below this many values a second meeting of the threads costs more than it saves.
  constexpr int64_t kSerialValues = 8192;
  const auto n_blocks = static_cast<size_t>(n_in_ / kActivationBlock);
  const int64_t n_panels = (call.n_rows + kMaxPanelRows - 1) / kMaxPanelRows;
  call.panels = context.workspace.take<Panel>(static_cast<size_t>(n_panels));
  for (int64_t p = 0; p < n_panels; ++p) {
    const auto n =
        static_cast<size_t>(std::min<int64_t>(kMaxPanelRows, call.n_rows - p * kMaxPanelRows));
    Panel& panel = call.panels[p];
    const PanelLayout kind = layout(call.activations, static_cast<int64_t>(n));
    const bool bytes = kind == PanelLayout::kBytes;
    panel.activations.values =
        context.workspace.take<int8_t>(n_blocks * n * static_cast<size_t>(panel_block_bytes(kind)));
    panel.activations.sums = context.workspace.take<int32_t>(n_blocks * n * 2);
    panel.activations.scales = context.workspace.take<float>(bytes ? n_blocks * n : n);
    panel.activations.n_rows = static_cast<int>(n);
    panel.activations.layout = kind;
    for (size_t k = 0; k < offset_kinds_.size(); ++k) {
      const auto per_block = static_cast<size_t>(offset_kinds_[k].n_per_block);
      panel.offsets[k] = context.workspace.take<int32_t>(n_blocks * n * per_block);
    }
  }
  if (call.n_rows * n_in_ <= kSerialValues) {
    for (int64_t row = 0; row < call.n_rows; ++row) quantize_one(call, row);
  } else {
    context.pool.for_ranges(call.n_rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) quantize_one(call, row);
    });
  }
}

/// Rows [first_row, first_row + kMaxPanelRows) of the call times `n` strips.
void StripLinear::apply_strips(const Call& call, int64_t first_row, const Segment& segment,
                               int64_t first, int64_t n) const {
  StripCall strips{};
  strips.strip = weights_.as<uint8_t>() + segment.begin_bytes + first * segment.strip_bytes;
  strips.strip_bytes = segment.strip_bytes;
  strips.n_strips = static_cast<int>(n);
  strips.n_in = n_in_;
  strips.n_rows = static_cast<int>(std::min<int64_t>(kMaxPanelRows, call.n_rows - first_row));
  strips.x = call.x + first_row * n_in_;
  strips.y = call.y + first_row * n_out_ + segment.first_out + first * kStripOutputs;
  strips.y_stride = n_out_;
  strips.n_outputs =
      static_cast<int>(std::min(n * kStripOutputs, segment.n_out - first * kStripOutputs));
  if (call.panels != nullptr) {
    const Panel& panel = call.panels[first_row / kMaxPanelRows];
    strips.panel = &panel.activations;
    strips.offsets = panel.offsets[segment.offsets];
  }
  segment.kernel(strips);
}

void StripLinear::multiply(Context& context, Call call) const {
  const Workspace::Mark mark = context.workspace.mark();
  if (!offset_kinds_.empty()) quantize(context, call);
  // Panel after panel: one stays in the second-level cache while the weights, a fraction of its
  // bytes for each product, stream past it.
  context.pool.run([&](int thread) {
    for (int64_t row = 0; row < call.n_rows; row += kMaxPanelRows) {
      for_strips(thread, context.pool.n_threads(),
                 [&](const Segment& segment, int64_t first, int64_t n) {
                   apply_strips(call, row, segment, first, n);
                 });
    }
  });
  context.workspace.rewind(mark);
}

std::string StripLinear::describe() const {
  std::string types;
  TensorType last{};
  for (const Segment& segment : segments_) {
    if (!types.empty() && segment.type == last) continue;
    types += (types.empty() ? "" : "+") + std::string(info(segment.type).name);
    last = segment.type;
  }
  return std::string(kernels_.name) + " " + types;
}

}  // namespace

Result<std::unique_ptr<Linear>> make_strip_linear(Context& context, const StripKernels& kernels,
                                                  std::span<const MatrixView> stacked,
                                                  PackedFile* file) {
  return StripLinear::create(context, kernels, stacked, file);
}

}  // namespace baton::linalg
