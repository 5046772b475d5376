#include "model/identity.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <span>
#include <string_view>

namespace baton::model {
namespace {

// Of a large tensor: enough to tell two of them apart, few enough pages to be read in no time.
constexpr size_t kPieces = 16;
constexpr size_t kPieceBytes = 1024;

/// XXH3 64 over a sequence of values. Equal on every machine: numbers go in as little-endian text.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }
  void bytes(std::span<const std::byte> data) {
    XXH3_64bits_update(&state_, data.data(), data.size());
  }
  void text(std::string_view text) {
    number(static_cast<int64_t>(text.size()));
    bytes(std::as_bytes(std::span(text)));
  }
  void number(int64_t value) { text_of(fmt::format("{};", value)); }
  /// Shortest text that reads back as the same value.
  void real(double value) { text_of(fmt::format("{};", value)); }
  [[nodiscard]] uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  void text_of(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
  XXH3_state_t state_{};
};

void add_spec(Hasher& hash, const ModelSpec& spec) {
  for (const int64_t value :
       {spec.n_vocab, spec.hidden, spec.n_heads, spec.n_kv_heads, spec.head_dim, spec.ffn,
        static_cast<int>(spec.activation), static_cast<int>(spec.qk_norms),
        static_cast<int>(spec.post_norms), spec.n_layers()}) {
    hash.number(value);
  }
  for (const float value : {spec.norm_eps, spec.embedding_scale, spec.attention_scale}) {
    hash.real(double{value});
  }
  hash.number(static_cast<int64_t>(spec.ropes.size()));
  for (const RopeSpec& rope : spec.ropes) {
    hash.number(static_cast<int64_t>(rope.style));
    hash.number(rope.n_rot);
    hash.real(rope.base);
    hash.real(rope.linear_factor);
    hash.number(static_cast<int64_t>(rope.divisors.size()));
    for (const float divisor : rope.divisors) hash.real(double{divisor});
  }
  for (const LayerSpec& layer : spec.layers) {
    hash.number(layer.window);
    hash.number(layer.rope);
  }
}

void add_tensor(Hasher& hash, const format::TensorView& tensor) {
  hash.text(tensor.name);
  hash.number(tensor.ggml_type);
  for (const int64_t size : tensor.shape) hash.number(size);
  const std::span<const std::byte> data = tensor.data;
  if (data.size() <= kPieces * kPieceBytes) {
    hash.bytes(data);
    return;
  }
  // The first and the last bytes are among them.
  const size_t last = data.size() - kPieceBytes;
  for (size_t i = 0; i < kPieces; ++i) {
    hash.bytes(data.subspan(last / (kPieces - 1) * i, kPieceBytes));
  }
  hash.bytes(data.last(kPieceBytes));
}

}  // namespace

std::string kv_identity(const Checkpoint& checkpoint, linalg::KernelSet kernels,
                        linalg::ActivationType prefill) {
  Hasher hash;
  add_spec(hash, checkpoint.spec);
  for (const format::TensorView& tensor : checkpoint.file->tensors()) add_tensor(hash, tensor);
  return fmt::format("{} '{}' {:016x}, {} kernels{}", checkpoint.spec.architecture,
                     checkpoint.spec.name, hash.digest(), linalg::name(kernels),
                     prefill == linalg::ActivationType::kInt16
                         ? ""
                         : fmt::format(", {} prefill activations", linalg::name(prefill)));
}

}  // namespace baton::model
