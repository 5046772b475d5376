#include "linalg/attention.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "linalg/attention_kernels.h"
#include "linalg/attention_reference.h"
#include "linalg/parallel.h"
#include "linalg/row_kernels.h"

namespace baton::linalg {
namespace {

/// Query rows (positions × heads of a group) that share a widened KV tile. 96 × 64 scores and a
/// tile of head_dim 256 stay within 400 KB of second-level cache; widening costs under a tenth of
/// the products.
constexpr int kUnitRows = 96;

/// The decode class folds positions in parts of so many and then joins the parts, so that both
/// cores can read one long sequence. The cuts are absolute: they depend on nothing but the
/// position.
constexpr int kPartTiles = 8;

size_t value_bytes(const KvLayer& layer) {
  return static_cast<size_t>(info(layer.type).block_bytes);
}

void check_layer(const KvLayer& layer) {
  BATON_CHECK(layer.type == TensorType::kBF16 || layer.type == TensorType::kF32);
  BATON_CHECK(layer.block_tokens == kKvBlockTokens && layer.head_dim % 8 == 0);
}

const AttentionKernels& attention_kernels(KernelSet kernels) {
#if defined(__x86_64__)
  if (kernels == KernelSet::kAvx512 || kernels == KernelSet::kAmx) return kAttentionKernelsAvx512;
  if (kernels == KernelSet::kAvx2) return kAttentionKernelsAvx2;
#endif
  return kAttentionKernelsPortable;
}

/// What one attention() call is about.
struct Call {
  const KvLayer& layer;
  const AttentionShape& shape;
  ConstRows q;
  float* out;

  [[nodiscard]] int group() const { return shape.n_heads / layer.n_kv_heads; }
  [[nodiscard]] int unit_positions() const { return std::max(1, kUnitRows / group()); }
};

/// The unit of `n_positions` rows from row `row` of `seq` on, for one kv head.
AttentionUnit make_unit(const Call& call, const SeqRows& seq, int row, int n_positions,
                        int kv_head) {
  const KvLayer& layer = call.layer;
  const size_t head_bytes = static_cast<size_t>(kKvBlockTokens) *
                            static_cast<size_t>(layer.head_dim) * value_bytes(layer);
  const int64_t first_head = int64_t{kv_head} * call.group() * layer.head_dim;
  AttentionUnit unit;
  unit.keys = layer.data + static_cast<size_t>(kv_head) * head_bytes;
  unit.values = unit.keys + static_cast<size_t>(layer.n_kv_heads) * head_bytes;
  unit.block_stride_bytes = layer.block_stride_bytes;
  unit.bf16 = layer.type == TensorType::kBF16;
  unit.blocks = seq.blocks.data();
  unit.head_dim = layer.head_dim;
  unit.group = call.group();
  unit.first_position = seq.begin + row;
  unit.n_positions = n_positions;
  unit.window = call.shape.window;
  unit.scale = call.shape.scale;
  unit.q_stride = call.q.stride;
  unit.q = call.q.data + (seq.first_row + row) * unit.q_stride + first_head;
  unit.out_stride = int64_t{call.shape.n_heads} * layer.head_dim;
  unit.out = call.out + (seq.first_row + row) * unit.out_stride + first_head;
  return unit;
}

int begin_tile(const AttentionUnit& unit) { return unit.begin_visible() / kTileTokens; }
int end_tile(const AttentionUnit& unit) {
  return (unit.end_position() + kTileTokens - 1) / kTileTokens;
}
int begin_part(const AttentionUnit& unit) { return begin_tile(unit) / kPartTiles; }
int n_parts(const AttentionUnit& unit) {
  return (end_tile(unit) + kPartTiles - 1) / kPartTiles - begin_part(unit);
}

/// All units of a call, those of later positions (which see more) first.
std::span<AttentionUnit> make_units(Context& context, const Call& call,
                                    std::span<const SeqRows> seqs) {
  const int step = call.unit_positions();
  size_t n = 0;
  for (const SeqRows& seq : seqs) {
    n += static_cast<size_t>((seq.n_rows + step - 1) / step * call.layer.n_kv_heads);
  }
  auto* units = context.workspace.take<AttentionUnit>(n);
  size_t i = 0;
  for (const SeqRows& seq : seqs) {
    BATON_CHECK(seq.begin >= 0 &&
                seq.begin + seq.n_rows <= static_cast<int>(seq.blocks.size()) * kKvBlockTokens);
    for (int row = 0; row < seq.n_rows; row += step) {
      for (int head = 0; head < call.layer.n_kv_heads; ++head) {
        units[i++] = make_unit(call, seq, row, std::min(step, seq.n_rows - row), head);
      }
    }
  }
  std::sort(units, units + n, [](const AttentionUnit& a, const AttentionUnit& b) {
    return a.end_position() > b.end_position();
  });
  return {units, n};
}

/// Multiplications of the whole call: does waking the pool pay?
bool worth_the_pool(std::span<const AttentionUnit> units) {
  int64_t products = 0;
  for (const AttentionUnit& unit : units) {
    products += int64_t{unit.end_position() - unit.begin_visible()} * unit.n_rows() * unit.head_dim;
  }
  return products > 16 * kInlineValues;
}

AttentionPart cut_part(float* memory, int n_rows, int width) {
  AttentionPart part;
  part.weighted = memory;
  part.sum = part.weighted + int64_t{n_rows} * width;
  part.max = part.sum + int64_t{n_rows} * kSumLanes;
  return part;
}

/// Scratch memory for each thread, enough for any unit.
class Scratches {
 public:
  Scratches(Context& context, int max_rows, int width)
      : max_rows_(max_rows),
        width_(width),
        size_((AttentionScratch::floats(max_rows, width) + AttentionPart::floats(max_rows, width) +
               15) /
              16 * 16),
        memory_(
            context.workspace.take<float>(size_ * static_cast<size_t>(context.pool.n_threads()))) {}

  [[nodiscard]] AttentionScratch scratch(int thread) const {
    AttentionScratch s;
    s.q = memory_ + size_ * static_cast<size_t>(thread);
    s.scores = s.q + int64_t{max_rows_} * width_;
    s.keys = s.scores + int64_t{max_rows_} * kTileTokens;
    s.values = s.keys + int64_t{width_} * kTileTokens;
    return s;
  }
  [[nodiscard]] AttentionPart part(int thread) const {
    return cut_part(scratch(thread).values + int64_t{width_} * kTileTokens, max_rows_, width_);
  }

 private:
  int max_rows_;
  int width_;
  size_t size_;
  float* memory_;
};

void attention_prefill(Context& context, std::span<const AttentionUnit> units,
                       const Scratches& scratches) {
  const AttentionKernels& k = attention_kernels(context.kernels);
  for_units(context, static_cast<int64_t>(units.size()), worth_the_pool(units),
            [&](int thread, int64_t i) {
              const AttentionUnit& unit = units[static_cast<size_t>(i)];
              const AttentionPart part = scratches.part(thread);
              k.attend(unit, begin_tile(unit), end_tile(unit), scratches.scratch(thread), part);
              k.finish(unit, &part, 1);
            });
}

/// One part of one unit.
struct Piece {
  int64_t unit;
  int index;  ///< of the part, in absolute terms
};

void attention_decode(Context& context, std::span<const AttentionUnit> units,
                      const Scratches& scratches) {
  const AttentionKernels& k = attention_kernels(context.kernels);
  size_t n_pieces = 0;
  for (const AttentionUnit& unit : units) n_pieces += static_cast<size_t>(n_parts(unit));
  auto* pieces = context.workspace.take<Piece>(n_pieces);
  auto* parts = context.workspace.take<AttentionPart>(n_pieces);
  size_t n = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    const int n_rows = units[u].n_rows();
    const int width = attention_width(units[u].head_dim);
    for (int p = 0; p < n_parts(units[u]); ++p, ++n) {
      pieces[n] = {static_cast<int64_t>(u), begin_part(units[u]) + p};
      parts[n] = cut_part(context.workspace.take<float>(AttentionPart::floats(n_rows, width)),
                          n_rows, width);
    }
  }
  const bool parallel = worth_the_pool(units);
  const auto unit_of = [&](const Piece& piece) -> const AttentionUnit& {
    return units[static_cast<size_t>(piece.unit)];
  };
  const auto first_tile = [&](const Piece& piece) {
    return std::max(piece.index * kPartTiles, begin_tile(unit_of(piece)));
  };
  // The piece that this thread is likely to take next.
  const int64_t ahead = parallel ? context.pool.n_threads() : 1;
  for_units(context, static_cast<int64_t>(n_pieces), parallel, [&](int thread, int64_t i) {
    const Piece& piece = pieces[i];
    const AttentionUnit& unit = unit_of(piece);
    if (i + ahead < static_cast<int64_t>(n_pieces)) {
      k.fetch(unit_of(pieces[i + ahead]), first_tile(pieces[i + ahead]));
    }
    k.stream(unit, first_tile(piece), std::min((piece.index + 1) * kPartTiles, end_tile(unit)),
             scratches.scratch(thread), parts[i]);
    if (n_parts(unit) == 1) k.finish(unit, parts + i, 1);
  });
  const AttentionPart* next = parts;
  for (const AttentionUnit& unit : units) {
    if (n_parts(unit) > 1) k.finish(unit, next, n_parts(unit));
    next += n_parts(unit);
  }
}

}  // namespace

void store_kv(Context& context, const KvLayer& layer, std::span<const SeqRows> seqs, ConstRows k,
              ConstRows v) {
  check_layer(layer);
  const RowKernels& kernels = row_kernels(context.kernels);
  const auto n = static_cast<size_t>(layer.head_dim);
  const size_t head_bytes = kKvBlockTokens * n * value_bytes(layer);
  const auto store_row = [&](const float* x, std::byte* head) {
    for (int h = 0; h < layer.n_kv_heads; ++h, x += n, head += head_bytes) {
      if (layer.type == TensorType::kBF16) {
        kernels.to_bf16(x, layer.head_dim, reinterpret_cast<uint16_t*>(head));
      } else {
        std::memcpy(head, x, n * sizeof(float));
      }
    }
  };
  for (const SeqRows& seq : seqs) {
    BATON_CHECK(seq.begin >= 0 &&
                seq.begin + seq.n_rows <= static_cast<int>(seq.blocks.size()) * kKvBlockTokens);
    for_rows(context, seq.n_rows, 2 * int64_t{layer.n_kv_heads} * layer.head_dim, [&](int64_t i) {
      const auto position = static_cast<size_t>(seq.begin + i);
      std::byte* block =
          layer.data + static_cast<size_t>(seq.blocks[position / kKvBlockTokens].value) *
                           layer.block_stride_bytes;
      std::byte* keys = block + position % kKvBlockTokens * n * value_bytes(layer);
      store_row(k.data + (seq.first_row + i) * k.stride, keys);
      store_row(v.data + (seq.first_row + i) * v.stride,
                keys + static_cast<size_t>(layer.n_kv_heads) * head_bytes);
    });
  }
}

void attention(Context& context, KernelClass kernel_class, const KvLayer& layer,
               const AttentionShape& shape, std::span<const SeqRows> seqs, ConstRows q,
               float* out) {
  check_layer(layer);
  BATON_CHECK(shape.n_heads % layer.n_kv_heads == 0);
  const Workspace::Mark mark = context.workspace.mark();
  if (context.kernels == KernelSet::kReference) {
    attention_reference(context, layer, shape, seqs, q, out);
  } else {
    const Call call = {layer, shape, q, out};
    const std::span<const AttentionUnit> units = make_units(context, call, seqs);
    int max_rows = 0;
    for (const AttentionUnit& unit : units) max_rows = std::max(max_rows, unit.n_rows());
    const Scratches scratches(context, max_rows, attention_width(layer.head_dim));
    if (kernel_class == KernelClass::kPrefill) {
      attention_prefill(context, units, scratches);
    } else {
      attention_decode(context, units, scratches);
    }
  }
  context.workspace.rewind(mark);
}

}  // namespace baton::linalg
