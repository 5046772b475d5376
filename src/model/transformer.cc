#include "model/transformer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "model/identity.h"

namespace baton::model {
namespace {

using linalg::ConstRows;
using linalg::HeadRows;
using linalg::KernelClass;
using linalg::Linear;
using linalg::MatrixView;

// Angles for so many positions are computed at the start; later ones when a sequence gets there. A
// table of the whole context would cost memory and start-up time that few sequences ever use.
constexpr int kFirstRopePositions = 4096;

/// All layers are packed alike for both classes.
bool classes_agree(const Checkpoint& checkpoint, linalg::KernelSet kernels,
                   linalg::ActivationType prefill) {
  const auto agree = [&](std::span<const MatrixView> stacked) {
    return linalg::classes_agree(kernels, stacked, prefill);
  };
  return std::all_of(checkpoint.layers.begin(), checkpoint.layers.end(), [&](const auto& layer) {
    return agree(layer.qkv) && agree({&layer.output, 1}) && agree(layer.gate_up) &&
           agree({&layer.down, 1});
  });
}

}  // namespace

Transformer::Transformer(linalg::Context& context, Checkpoint checkpoint,
                         const TransformerOptions& options)
    : context_(context),
      checkpoint_(std::move(checkpoint)),
      context_length_(options.context_length > 0 ? options.context_length
                                                 : checkpoint_.spec.context_length),
      prefill_activations_(options.prefill_activations) {}

Result<std::unique_ptr<Transformer>> Transformer::create(linalg::Context& context,
                                                         Checkpoint checkpoint,
                                                         const TransformerOptions& options) {
  const int most = checkpoint.spec.context_length;
  if (options.context_length < 0 || options.context_length > most) {
    return fail(ErrorCode::kInvalidArgument,
                "{}: a context of {} tokens was asked for; the model has {}",
                checkpoint.file->path(), options.context_length, most);
  }
  BATON_CHECK(options.prefill_activations == linalg::ActivationType::kInt16 ||
              linalg::has_int8_activations(context.kernels));
  std::unique_ptr<Transformer> model(new Transformer(context, std::move(checkpoint), options));
  if (auto s = model->pack_all(options); !s) return tl::unexpected(s.error());
  model->grow_rope_tables(std::min(model->context_length_, kFirstRopePositions));
  model->checkpoint_.file->release_pages();
  return model;
}

Status Transformer::pack_all(const TransformerOptions& options) {
  kv_identity_ = model::kv_identity(checkpoint_, context_.kernels, prefill_activations_);
  // What is packed is alike for all activations.
  PackedCache cache(context_, checkpoint_, model::kv_identity(checkpoint_, context_.kernels),
                    options.packed_cache);
  if (options.with_decode_weights) {
    auto packed = pack(KernelClass::kDecode, nullptr, cache.file("decode"));
    if (!packed) return tl::unexpected(packed.error());
    decode_ = std::move(*packed);
  }
  if (options.with_prefill_weights) {
    // Engines of all roles share one file where the classes share their weights.
    const bool shared = classes_agree(checkpoint_, context_.kernels, prefill_activations_);
    const char* file = shared ? "decode" : "prefill";
    auto packed = pack(KernelClass::kPrefill, decode_.get(), cache.file(file));
    if (!packed) return tl::unexpected(packed.error());
    prefill_ = std::move(*packed);
  }
  auto head = pack_one(KernelClass::kDecode, {&checkpoint_.head, 1}, cache.file("head"));
  if (!head) return tl::unexpected(head.error());
  head_ = std::move(*head);
  cache.save();
  weights_cached_ = cache.complete();
  return {};
}

Result<std::unique_ptr<Linear>> Transformer::pack_one(KernelClass kernel_class,
                                                      std::span<const MatrixView> stacked,
                                                      linalg::PackedFile& file) const {
  // Where both classes have the same weights it is the decode class's layout.
  if (linalg::classes_agree(context_.kernels, stacked, prefill_activations_)) {
    kernel_class = KernelClass::kDecode;
  }
  auto made = linalg::make_linear(context_, kernel_class, stacked, &file);
  if (made) return made;
  return fail(made.error().code, "{}: {}", checkpoint_.file->path(), made.error().message);
}

Result<std::unique_ptr<Transformer::Weights>> Transformer::pack(KernelClass kernel_class,
                                                                const Weights* other,
                                                                linalg::PackedFile& file) const {
  auto out = std::make_unique<Weights>();
  Status status;
  const auto add = [&](std::span<const MatrixView> stacked,
                       std::shared_ptr<const Linear> LayerWeights::*linear) {
    if (!status) return;
    if (other != nullptr &&
        linalg::classes_agree(context_.kernels, stacked, prefill_activations_)) {
      out->back().*linear = (*other)[out->size() - 1].*linear;
      return;
    }
    auto made = pack_one(kernel_class, stacked, file);
    if (made) {
      out->back().*linear = std::move(*made);
    } else {
      status = tl::unexpected(made.error());
    }
  };
  for (const LayerTensors& layer : checkpoint_.layers) {
    out->emplace_back();
    add(layer.qkv, &LayerWeights::qkv);
    add({&layer.output, 1}, &LayerWeights::output);
    add(layer.gate_up, &LayerWeights::gate_up);
    add({&layer.down, 1}, &LayerWeights::down);
  }
  if (!status) return tl::unexpected(status.error());
  return out;
}

const Transformer::Weights& Transformer::weights(KernelClass kernel_class) const {
  const Weights* weights = (kernel_class == KernelClass::kPrefill ? prefill_ : decode_).get();
  BATON_CHECK(weights != nullptr, "no weights of this slice's class were packed");
  return *weights;
}

bool Transformer::int8(KernelClass kernel_class) const {
  return kernel_class == KernelClass::kPrefill &&
         prefill_activations_ == linalg::ActivationType::kInt8;
}

void Transformer::multiply(const Linear& linear, const float* x, float* y) {
  if (int8(group_.kernel_class)) {
    linear.apply_int8(context_, x, group_.n_rows(), y);
  } else {
    linear.apply(context_, x, group_.n_rows(), y);
  }
}

kv::KvLayout Transformer::kv_layout(int n_blocks, TensorType type) const {
  kv::KvLayout layout;
  layout.n_layers = spec().n_layers();
  layout.n_blocks = n_blocks;
  layout.n_kv_heads = spec().n_kv_heads;
  layout.head_dim = spec().head_dim;
  layout.type = type;
  return layout;
}

void Transformer::bind_kv(const kv::KvLayout& layout, std::byte* memory) {
  BATON_CHECK(layout.n_layers == spec().n_layers() && layout.n_kv_heads == spec().n_kv_heads &&
              layout.head_dim == spec().head_dim);
  kv_.clear();
  for (int layer = 0; layer < layout.n_layers; ++layer) {
    kv_.push_back({.data = memory + layout.offset(layer, BlockId{0}),
                   .block_stride_bytes = layout.block_bytes(),
                   .type = layout.type,
                   .n_kv_heads = layout.n_kv_heads,
                   .head_dim = layout.head_dim,
                   .block_tokens = layout.block_tokens});
  }
}

void Transformer::grow_rope_tables(int n_positions) {
  if (!rope_tables_.empty() && rope_tables_.front().max_positions() >= n_positions) return;
  if (!rope_tables_.empty())
    n_positions = std::max(n_positions, 2 * rope_tables_.front().max_positions());
  n_positions = std::min(n_positions, context_length_);
  rope_tables_.clear();
  for (const RopeSpec& rope : spec().ropes) {
    rope_tables_.emplace_back(inverse_frequencies(rope), n_positions);
  }
}

/// Collects the slices of one class into group_.
void Transformer::gather(std::span<const SeqSlice> slices, KernelClass kernel_class) {
  group_.kernel_class = kernel_class;
  group_.tokens.clear();
  group_.positions.clear();
  group_.seqs.clear();
  group_.outputs.clear();
  int64_t logits_row = 0;
  for (const SeqSlice& slice : slices) {
    const int n_rows = static_cast<int>(slice.tokens.size());
    BATON_CHECK(slice.begin >= 0 && n_rows <= context_length_ - slice.begin);
    BATON_CHECK(slice.n_logits >= 0 && slice.n_logits <= n_rows);
    if (slice.kernel_class == kernel_class && n_rows > 0) {
      const int64_t first_row = group_.n_rows();
      group_.seqs.push_back({slice.blocks, slice.begin, n_rows, first_row});
      for (int i = 0; i < n_rows; ++i) {
        const TokenId token = slice.tokens[static_cast<size_t>(i)];
        BATON_CHECK(token >= 0 && token < spec().n_vocab, "token {}", token);
        group_.tokens.push_back(token);
        group_.positions.push_back(slice.begin + i);
      }
      if (slice.n_logits > 0) {
        group_.outputs.push_back({group_.seqs.size() - 1, logits_row, slice.n_logits});
      }
    }
    logits_row += slice.n_logits;
  }
}

void Transformer::forward(std::span<const SeqSlice> slices, float* logits, LayerHook* hook) {
  BATON_CHECK(!kv_.empty(), "bind_kv() comes first");
  // Prefill first: where a batch has a prompt's last chunk and its tail, the tail reads that
  // chunk's KV.
  for (const KernelClass kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
    gather(slices, kernel_class);
    const int64_t n_rows = group_.n_rows();
    if (n_rows == 0) continue;
    grow_rope_tables(1 + *std::max_element(group_.positions.begin(), group_.positions.end()));

    linalg::Workspace& workspace = context_.workspace;
    const linalg::Workspace::Mark mark = workspace.mark();
    const auto take = [&](int64_t width) { return workspace.take<float>(size_t(n_rows * width)); };
    float* x = take(spec().hidden);  // [n_rows, hidden]: the residual stream
    const Buffers buffers{.normed = take(spec().hidden),
                          .qkv = take(spec().qkv_width()),
                          .attended = take(spec().q_width()),
                          .branch = take(spec().hidden),
                          .gate_up = take(int64_t{2} * spec().ffn),
                          .activated = take(spec().ffn)};
    linalg::embed(context_, checkpoint_.embedding, group_.tokens, spec().embedding_scale, x);
    const bool needed = run_layers(buffers, x, hook);
    if (needed) head(buffers, x, logits);
    workspace.rewind(mark);
    if (!needed) return;
  }
}

bool Transformer::run_layers(const Buffers& buffers, float* x, LayerHook* hook) {
  const KernelClass kernel_class = group_.kernel_class;
  const Weights& packed = weights(kernel_class);
  for (int layer = 0; layer < spec().n_layers(); ++layer) {
    if (hook != nullptr) hook->on_layer_begin(layer, kernel_class);
    attention_branch(layer, packed[size_t(layer)], buffers, x, hook);
    mlp_branch(layer, packed[size_t(layer)], buffers, x);
    if (hook != nullptr && !hook->on_layer_end(layer, kernel_class)) return false;
  }
  return true;
}

/// x += post_norm(W_o attention(rope(norm(q)), rope(norm(k)), v)), q|k|v = W_qkv norm(x).
void Transformer::attention_branch(int layer, const LayerWeights& weights, const Buffers& buffers,
                                   float* x, LayerHook* hook) {
  const ModelSpec& s = spec();
  const LayerTensors& tensors = checkpoint_.layers[size_t(layer)];
  const LayerSpec& layer_spec = s.layers[size_t(layer)];
  const linalg::KvLayer& kv = kv_[size_t(layer)];
  int64_t n_rows = group_.n_rows();

  linalg::rms_norm(context_, x, tensors.attention_norm.data(), s.norm_eps, n_rows, s.hidden,
                   buffers.normed);
  multiply(*weights.qkv, buffers.normed, buffers.qkv);

  const int64_t stride = s.qkv_width();
  float* k = buffers.qkv + s.q_width();
  float* v = k + s.kv_width();
  const HeadRows q_heads{buffers.qkv, stride, s.n_heads, s.head_dim};
  const HeadRows k_heads{k, stride, s.n_kv_heads, s.head_dim};
  if (s.qk_norms) {
    linalg::rms_norm_heads(context_, q_heads, tensors.q_norm.data(), s.norm_eps, n_rows);
    linalg::rms_norm_heads(context_, k_heads, tensors.k_norm.data(), s.norm_eps, n_rows);
  }
  const linalg::RopeTable& table = rope_tables_[size_t(layer_spec.rope)];
  const linalg::RopeStyle style = s.ropes[size_t(layer_spec.rope)].style;
  linalg::rope(context_, table, style, group_.positions, q_heads);
  linalg::rope(context_, table, style, group_.positions, k_heads);

  linalg::store_kv(context_, kv, group_.seqs, {k, stride}, {v, stride});
  if (hook != nullptr) hook->on_kv_stored(layer, group_.kernel_class);
  if (layer + 1 == s.n_layers()) {
    keep_output_rows(buffers, x);
    n_rows = group_.n_rows();
  }
  if (n_rows == 0) return;
  const linalg::AttentionShape shape{s.n_heads, s.attention_scale, layer_spec.window};
  linalg::attention(context_, group_.kernel_class, kv, shape, group_.seqs, {buffers.qkv, stride},
                    buffers.attended);
  multiply(*weights.output, buffers.attended, buffers.branch);
  if (s.post_norms) {
    linalg::rms_norm(context_, buffers.branch, tensors.post_attention_norm.data(), s.norm_eps,
                     n_rows, s.hidden, buffers.branch);
  }
  linalg::add_in_place(context_, x, buffers.branch, n_rows, s.hidden);
}

/// Drops the rows that want no logits: from the group, from x and from q. A row moves forward only.
void Transformer::keep_output_rows(const Buffers& buffers, float* x) {
  const int64_t hidden = spec().hidden;
  const int64_t stride = spec().qkv_width();
  std::vector<linalg::SeqRows>& seqs = group_.seqs;
  int64_t to = 0;
  for (size_t i = 0; i < group_.outputs.size(); ++i) {
    const LogitRows& output = group_.outputs[i];
    const linalg::SeqRows seq = seqs[output.seq];
    const int n_dropped = seq.n_rows - output.n_rows;
    const int64_t from = seq.first_row + n_dropped;
    if (from != to) {
      std::copy_n(x + from * hidden, output.n_rows * hidden, x + to * hidden);
      std::copy_n(buffers.qkv + from * stride, output.n_rows * stride, buffers.qkv + to * stride);
    }
    seqs[i] = {seq.blocks, seq.begin + n_dropped, output.n_rows, to};
    to += output.n_rows;
  }
  seqs.resize(group_.outputs.size());
  group_.tokens.resize(static_cast<size_t>(to));
  group_.positions.clear();  // the rotations are done
}

/// x += post_norm(W_down (act(gate) * up)), gate|up = W_gate_up norm(x).
void Transformer::mlp_branch(int layer, const LayerWeights& weights, const Buffers& buffers,
                             float* x) {
  const ModelSpec& s = spec();
  const LayerTensors& tensors = checkpoint_.layers[size_t(layer)];
  const int64_t n_rows = group_.n_rows();
  if (n_rows == 0) return;

  linalg::rms_norm(context_, x, tensors.ffn_norm.data(), s.norm_eps, n_rows, s.hidden,
                   buffers.normed);
  multiply(*weights.gate_up, buffers.normed, buffers.gate_up);
  linalg::gated_activation(context_, s.activation, buffers.gate_up, n_rows, s.ffn,
                           buffers.activated);
  multiply(*weights.down, buffers.activated, buffers.branch);
  if (s.post_norms) {
    linalg::rms_norm(context_, buffers.branch, tensors.post_ffn_norm.data(), s.norm_eps, n_rows,
                     s.hidden, buffers.branch);
  }
  linalg::add_in_place(context_, x, buffers.branch, n_rows, s.hidden);
}

/// Final norm and output matrix, for the rows that keep_output_rows() left.
void Transformer::head(const Buffers& buffers, const float* x, float* logits) {
  const std::vector<LogitRows>& outputs = group_.outputs;
  const int64_t hidden = spec().hidden;
  if (outputs.empty()) return;
  linalg::rms_norm(context_, x, checkpoint_.final_norm.data(), spec().norm_eps, group_.n_rows(),
                   hidden, buffers.normed);
  const float* from = buffers.normed;
  // Slices whose logits follow one another are one product: in a decode step all of them.
  for (size_t begin = 0; begin < outputs.size();) {
    int64_t n_rows = 0;
    size_t end = begin;
    while (end < outputs.size() && outputs[end].logits_row == outputs[begin].logits_row + n_rows) {
      n_rows += outputs[end++].n_rows;
    }
    head_->apply(context_, from, n_rows, logits + outputs[begin].logits_row * spec().n_vocab);
    from += n_rows * hidden;
    begin = end;
  }
}

std::vector<GemmInfo> Transformer::gemms() const {
  std::vector<GemmInfo> out;
  const auto add = [&](const char* name, KernelClass kernel_class, const Linear& linear) {
    const std::string implementation =
        int8(kernel_class) ? linear.describe_int8() : linear.describe();
    auto found = std::find_if(out.begin(), out.end(), [&](const GemmInfo& gemm) {
      return gemm.name == name && gemm.kernel_class == kernel_class &&
             gemm.implementation == implementation;
    });
    if (found == out.end()) found = out.insert(out.end(), {name, kernel_class, implementation});
    ++found->n_matrices;
    found->bytes += linear.bytes();
  };
  for (const KernelClass kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
    const Weights* packed = (kernel_class == KernelClass::kPrefill ? prefill_ : decode_).get();
    if (packed == nullptr) continue;
    for (const LayerWeights& layer : *packed) {
      add("qkv", kernel_class, *layer.qkv);
      add("attention_output", kernel_class, *layer.output);
      add("gate_up", kernel_class, *layer.gate_up);
      add("down", kernel_class, *layer.down);
    }
  }
  add("head", KernelClass::kDecode, *head_);
  return out;
}

size_t Transformer::weights_bytes() const {
  std::set<const Linear*> all = {head_.get()};
  for (const Weights* packed : {prefill_.get(), decode_.get()}) {
    if (packed == nullptr) continue;
    for (const LayerWeights& layer : *packed) {
      all.insert({layer.qkv.get(), layer.output.get(), layer.gate_up.get(), layer.down.get()});
    }
  }
  size_t bytes = 0;
  for (const Linear* linear : all) bytes += linear->bytes();
  return bytes;
}

}  // namespace baton::model
