#include "model/checkpoint.h"

#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "kv/layout.h"
#include "model/gguf_spec.h"

namespace baton::model {
namespace {

using format::TensorView;
using linalg::MatrixView;

/// Takes tensors by name, checks them, and remembers which were taken and the first error. Lives
/// for one read_checkpoint().
class TensorReader {
 public:
  explicit TensorReader(const format::GgufFile& file) : file_(file) {}

  MatrixView matrix(const std::string& name, int64_t n_out, int64_t n_in) {
    const TensorView* tensor = take(name, {n_out, n_in});
    if (tensor == nullptr) return {};
    return {*tensor->type, n_out, n_in, tensor->data.data()};
  }

  /// A vector as float32, whatever its type; every value must be finite.
  std::vector<float> vector(const std::string& name, int64_t n) {
    const TensorView* tensor = take(name, {n});
    if (tensor == nullptr) return {};
    std::vector<float> out(static_cast<size_t>(n));
    linalg::dequantize(*tensor->type, tensor->data.data(), n, out.data());
    for (const float value : out) {
      if (!std::isfinite(value)) {
        refuse(ErrorCode::kCorrupt, "tensor {} holds a value that is not finite",
               format::quoted(name));
        break;
      }
    }
    return out;
  }

  /// A tensor that is known and not needed.
  void skip(const std::string& name) { taken_.insert(name); }

  /// What was never taken would be computed without: that is an error, not a detail.
  void refuse_leftovers(const std::string& architecture) {
    for (const TensorView& tensor : file_.tensors()) {
      if (ok_ && taken_.count(std::string(tensor.name)) == 0) {
        refuse(ErrorCode::kUnsupported, "tensor {} {} is not one that {} models have here",
               format::quoted(tensor.name), format::shape_name(tensor.shape), architecture);
      }
    }
  }

  template <typename... Args>
  void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    if (!ok_) return;
    ok_ = false;
    error_ = Error{code, fmt::format("{}: {}", file_.path(),
                                     fmt::format(format, std::forward<Args>(args)...))};
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  const TensorView* take(const std::string& name, const std::vector<int64_t>& shape) {
    taken_.insert(name);
    const TensorView* tensor = file_.tensor(name);
    if (tensor == nullptr) {
      refuse(ErrorCode::kNotFound, "tensor '{}' {} is missing", name, format::shape_name(shape));
    } else if (tensor->shape != shape) {
      refuse(ErrorCode::kCorrupt, "tensor '{}' has shape {}, but the metadata says {}", name,
             format::shape_name(tensor->shape), format::shape_name(shape));
    } else if (!tensor->type) {
      refuse(ErrorCode::kUnsupported, "tensor '{}' has type {}, which is not supported", name,
             format::ggml_type_name(tensor->ggml_type));
    } else {
      return tensor;
    }
    return nullptr;
  }

  const format::GgufFile& file_;
  std::unordered_set<std::string> taken_;
  bool ok_ = true;
  Error error_;
};

LayerTensors read_layer(TensorReader& tensors, const ModelSpec& spec, int layer) {
  const auto name = [&](std::string_view part) {
    return fmt::format("blk.{}.{}.weight", layer, part);
  };
  LayerTensors out;
  out.attention_norm = tensors.vector(name("attn_norm"), spec.hidden);
  out.qkv = {tensors.matrix(name("attn_q"), spec.q_width(), spec.hidden),
             tensors.matrix(name("attn_k"), spec.kv_width(), spec.hidden),
             tensors.matrix(name("attn_v"), spec.kv_width(), spec.hidden)};
  out.output = tensors.matrix(name("attn_output"), spec.hidden, spec.q_width());
  out.ffn_norm = tensors.vector(name("ffn_norm"), spec.hidden);
  out.gate_up = {tensors.matrix(name("ffn_gate"), spec.ffn, spec.hidden),
                 tensors.matrix(name("ffn_up"), spec.ffn, spec.hidden)};
  out.down = tensors.matrix(name("ffn_down"), spec.hidden, spec.ffn);
  if (spec.qk_norms) {
    out.q_norm = tensors.vector(name("attn_q_norm"), spec.head_dim);
    out.k_norm = tensors.vector(name("attn_k_norm"), spec.head_dim);
  }
  if (spec.post_norms) {
    out.post_attention_norm = tensors.vector(name("post_attention_norm"), spec.hidden);
    out.post_ffn_norm = tensors.vector(name("post_ffw_norm"), spec.hidden);
  }
  // Tables of angles that old converters wrote; every reader computes them.
  tensors.skip(name("attn_rot_embd"));
  tensors.skip(fmt::format("blk.{}.attn.rotary_emb.inv_freq", layer));
  return out;
}

/// Frequency divisors of llama3's scaling: positive, and of full layers only (sliding ones are
/// unscaled).
void read_rope_divisors(TensorReader& tensors, const format::GgufFile& file, ModelSpec& spec) {
  if (file.tensor("rope_freqs.weight") == nullptr) return;
  RopeSpec& rope = spec.ropes.front();
  rope.divisors = tensors.vector("rope_freqs.weight", rope.n_rot / 2);
  for (const float divisor : rope.divisors) {
    if (!(divisor > 0.0F)) {
      tensors.refuse(ErrorCode::kCorrupt,
                     "tensor 'rope_freqs.weight' holds {}; all must be positive", divisor);
      return;
    }
  }
}

}  // namespace

Result<Checkpoint> read_checkpoint(std::shared_ptr<const format::GgufFile> file) {
  auto spec = spec_from_gguf(*file);
  if (!spec) return tl::unexpected(spec.error());
  Checkpoint out;
  TensorReader tensors(*file);
  read_rope_divisors(tensors, *file, *spec);
  out.embedding = tensors.matrix("token_embd.weight", spec->n_vocab, spec->hidden);
  out.head = spec->tied_head ? out.embedding
                             : tensors.matrix("output.weight", spec->n_vocab, spec->hidden);
  out.final_norm = tensors.vector("output_norm.weight", spec->hidden);
  for (int layer = 0; layer < spec->n_layers() && tensors.ok(); ++layer) {
    out.layers.push_back(read_layer(tensors, *spec, layer));
  }
  tensors.refuse_leftovers(spec->architecture);
  if (!tensors.ok()) return tl::unexpected(tensors.error());
  out.spec = std::move(*spec);
  out.file = std::move(file);
  return out;
}

MemoryNeeds memory_needs(const Checkpoint& checkpoint, linalg::KernelSet kernels) {
  const ModelSpec& spec = checkpoint.spec;
  MemoryNeeds needs;
  int64_t n_values = 0;
  const auto file_bytes = [](const MatrixView& matrix) {
    return row_bytes(matrix.type, matrix.n_in) * static_cast<size_t>(matrix.n_out);
  };
  const auto count = [&](std::span<const MatrixView> stacked) {
    const bool shared = linalg::classes_agree(kernels, stacked);
    for (const MatrixView& matrix : stacked) {
      const size_t bf16 = static_cast<size_t>(matrix.n_out * matrix.n_in) * 2;
      const size_t blocks = file_bytes(matrix);
      n_values += matrix.n_out * matrix.n_in;
      needs.decode_weights_bytes += blocks;
      needs.prefill_weights_bytes += shared ? blocks : bf16;
      needs.both_weights_bytes += shared ? blocks : blocks + bf16;
    }
  };
  for (const LayerTensors& layer : checkpoint.layers) {
    count(layer.qkv);
    count({&layer.output, 1});
    count(layer.gate_up);
    count({&layer.down, 1});
  }
  needs.head_bytes = file_bytes(checkpoint.head);
  n_values += checkpoint.head.n_out * checkpoint.head.n_in;
  needs.reference_weights_bytes = static_cast<size_t>(n_values) * 4;
  for (const TensorView& tensor : checkpoint.file->tensors())
    needs.file_bytes += tensor.data.size();
  kv::KvLayout layout{.n_layers = spec.n_layers(),
                      .n_blocks = 1,
                      .n_kv_heads = spec.n_kv_heads,
                      .head_dim = spec.head_dim};
  needs.kv_bytes_per_token_bf16 = layout.total_bytes() / static_cast<size_t>(layout.block_tokens);
  layout.type = TensorType::kF32;
  needs.kv_bytes_per_token_f32 = layout.total_bytes() / static_cast<size_t>(layout.block_tokens);
  return needs;
}

std::map<std::string, TypeUse> tensor_types(const format::GgufFile& file) {
  std::map<std::string, TypeUse> out;
  for (const TensorView& tensor : file.tensors()) {
    TypeUse& use = out[format::ggml_type_name(tensor.ggml_type)];
    int64_t n_values = 1;
    for (const int64_t dim : tensor.shape) n_values *= dim;
    ++use.n_tensors;
    use.n_values += n_values;
    use.bytes += tensor.data.size();
  }
  return out;
}

}  // namespace baton::model
