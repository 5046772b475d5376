#include "testing/synthetic_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "text/byte_alphabet.h"
#include "text/vocab_data.h"

namespace baton::testing {
namespace {

constexpr std::array<SyntheticShape, 3> kShapes = {{
    {.name = "1.5b",
     .hidden = 1536,
     .n_layers = 28,
     .n_heads = 12,
     .n_kv_heads = 2,
     .head_dim = 128,
     .ffn = 8960,
     .n_vocab = 151936,
     .context_length = 32768,
     .rope_base = 1e6F,
     .tied_head = true},
    {.name = "7b",
     .hidden = 4096,
     .n_layers = 32,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .n_vocab = 32000,
     .context_length = 32768,
     .rope_base = 1e6F,
     .tied_head = false},
    {.name = "tiny",
     .hidden = 256,
     .n_layers = 2,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 64,
     .ffn = 512,
     .n_vocab = 512,
     .context_length = 512,
     .rope_base = 1e4F,
     .tied_head = false},
}};

// ---- random blocks

/// Word `i` of the stream `seed` (splitmix64): any part of a tensor can be made alone.
uint64_t random_word(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

uint64_t hash_of(std::string_view name, uint64_t seed) {
  for (const char c : name) seed = random_word(seed ^ static_cast<unsigned char>(c), 0);
  return seed;
}

/// float16 of a finite number in its range, rounded up in size from a tie.
uint16_t half_of(float value) {
  const auto sign = static_cast<uint16_t>(value < 0 ? 0x8000 : 0);
  const float size = std::fabs(value);
  if (size < 0x1p-14F) return sign | static_cast<uint16_t>(std::lround(size * 0x1p24F));
  const uint32_t bits = std::bit_cast<uint32_t>(size) + 0x1000;
  return sign | static_cast<uint16_t>((bits >> 13) - (112U << 10));
}

/// Scales for a random byte to choose from: `middle` times 0.5 … 1.5, half of them negative.
using Scales = std::array<uint16_t, 256>;
Scales scales_around(float middle) {
  Scales out;
  for (size_t i = 0; i < out.size(); ++i) {
    const float factor = 0.5F + static_cast<float>(i / 2) / 128.0F;
    out[i] = half_of(i % 2 == 0 ? middle * factor : -middle * factor);
  }
  return out;
}
// √(mean of the squares of those factors).
constexpr float kFactorRms = 1.04F;

/// What makes a block of random bytes one with sane scales, and the standard deviation of its
/// values where the scales are around 1. Layouts: ggml-common.h of llama.cpp.
struct BlockMaker {
  float rms;
  void (*make)(std::byte* block, const Scales& scales, const Scales& mins);
};

void put_scale(std::byte* at, uint8_t choice, const Scales& scales) {
  std::memcpy(at, &scales[choice], sizeof scales[choice]);
}

/// Q4_0, Q8_0: a float16, then the codes.
void make_simple(std::byte* block, const Scales& scales, const Scales&) {
  put_scale(block, static_cast<uint8_t>(block[0]), scales);
}

// Codes of 4 bits less 7.5: √((16² - 1) / 12).
constexpr float kNibbleRms = 4.61F;
// Of 6-bit sub-scales: √(63 · 127 / 6).
constexpr float kSubScaleRms = 36.5F;

/// Q4_K: d, dmin, then 12 bytes with 8 scales and 8 minima of 6 bits, then the codes. Value
/// = d · scale · code - dmin · min; with min = scale and dmin = 7.5 d its mean is 0.
void make_q4_k(std::byte* block, const Scales& scales, const Scales& mins) {
  const auto choice = static_cast<uint8_t>(block[0]);
  put_scale(block, choice, scales);
  put_scale(block + 2, choice, mins);
  std::byte* packed = block + 4;
  for (int i = 0; i < 4; ++i) {
    packed[4 + i] = packed[i];
    const std::byte low = packed[8 + i] & std::byte{15};
    packed[8 + i] = low | low << 4;
  }
}

BlockMaker block_maker(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return {4.64F, make_simple};  // codes -8 … 7: √21.5
    case TensorType::kQ8_0:
      return {73.9F, make_simple};  // codes -128 … 127: √5461.5
    case TensorType::kQ4_K:
      return {kNibbleRms * kSubScaleRms, make_q4_k};
    default:
      BATON_CHECK(false, "no synthetic blocks of {}", info(type).name);
      return {};
  }
}

// ---- the file

class Builder {
 public:
  Builder(const SyntheticShape& shape, TensorType type, uint64_t seed)
      : shape_(shape), type_(type), seed_(seed) {}

  GgufWriter build() {
    add_sizes();
    add_vocabulary();
    add_tensors();
    return std::move(writer_);
  }

 private:
  void add_sizes();
  void add_vocabulary();
  void add_tensors();
  void add_matrix(const std::string& name, int64_t n_out, int64_t n_in, float deviation = 1.0F);
  void add_norm(const std::string& name);

  const SyntheticShape& shape_;
  const TensorType type_;
  const uint64_t seed_;
  GgufWriter writer_;
};

void Builder::add_sizes() {
  writer_.add("general.architecture", "llama")
      .add("general.name", fmt::format("synthetic {} {}", shape_.name, info(type_).name))
      .add("llama.block_count", static_cast<uint32_t>(shape_.n_layers))
      .add("llama.context_length", static_cast<uint32_t>(shape_.context_length))
      .add("llama.embedding_length", static_cast<uint32_t>(shape_.hidden))
      .add("llama.feed_forward_length", static_cast<uint32_t>(shape_.ffn))
      .add("llama.attention.head_count", static_cast<uint32_t>(shape_.n_heads))
      .add("llama.attention.head_count_kv", static_cast<uint32_t>(shape_.n_kv_heads))
      .add("llama.attention.key_length", static_cast<uint32_t>(shape_.head_dim))
      .add("llama.attention.value_length", static_cast<uint32_t>(shape_.head_dim))
      .add("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .add("llama.rope.dimension_count", static_cast<uint32_t>(shape_.head_dim))
      .add("llama.rope.freq_base", shape_.rope_base)
      .add("llama.vocab_size", static_cast<uint32_t>(shape_.n_vocab));
}

/// " x" and four or more letters for a number: a word of its own in every text.
std::string made_up_word(int number) {
  std::string letters;
  for (; number > 0 || letters.size() < 4; number /= 26) {
    letters.insert(letters.begin(), static_cast<char>('a' + number % 26));
  }
  return " x" + letters;
}

void Builder::add_vocabulary() {
  BATON_CHECK(shape_.n_vocab >= kLeastVocab);
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(tokens.size(), static_cast<int32_t>(text::TokenType::kControl));
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(text::alphabet_from_bytes(std::string(1, static_cast<char>(byte))));
  }
  const auto n_tokens = static_cast<size_t>(shape_.n_vocab);
  while (tokens.size() < n_tokens) {
    tokens.push_back(
        text::alphabet_from_bytes(made_up_word(static_cast<int>(tokens.size()) - kLeastVocab)));
  }
  types.resize(n_tokens, static_cast<int32_t>(text::TokenType::kNormal));
  // Llama 3's rule takes words that are tokens as they are, so no merges are needed.
  writer_.add("tokenizer.ggml.model", "gpt2")
      .add("tokenizer.ggml.pre", "llama-bpe")
      .add("tokenizer.ggml.tokens", std::span<const std::string>(tokens))
      .add("tokenizer.ggml.token_type", std::span<const int32_t>(types))
      .add("tokenizer.ggml.merges", std::span<const std::string>())
      .add("tokenizer.ggml.bos_token_id", uint32_t{0})
      .add("tokenizer.ggml.eos_token_id", uint32_t{2})
      .add("tokenizer.ggml.add_bos_token", false)
      .add("tokenizer.chat_template",
           "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
           "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
           "{% endif %}");
}

void Builder::add_matrix(const std::string& name, int64_t n_out, int64_t n_in, float deviation) {
  const BlockMaker maker = block_maker(type_);
  const float middle = deviation / (std::sqrt(static_cast<float>(n_in)) * maker.rms * kFactorRms);
  const Scales scales = scales_around(middle);
  const Scales mins = scales_around(7.5F * middle);
  const auto block_bytes = static_cast<size_t>(info(type_).block_bytes);
  const size_t one_row = row_bytes(type_, n_in);
  const uint64_t seed = hash_of(name, seed_);
  BATON_CHECK(one_row % sizeof(uint64_t) == 0, "rows of {} bytes", one_row);
  writer_.add_tensor(name, std::vector<int64_t>{n_out, n_in}, type_,
                     [=](int64_t first_row, std::span<std::byte> rows) {
                       uint64_t word =
                           static_cast<uint64_t>(first_row) * (one_row / sizeof(uint64_t));
                       for (size_t at = 0; at < rows.size(); at += sizeof(uint64_t)) {
                         const uint64_t bytes = random_word(seed, word++);
                         std::memcpy(rows.data() + at, &bytes, sizeof bytes);
                       }
                       for (size_t at = 0; at < rows.size(); at += block_bytes) {
                         maker.make(rows.data() + at, scales, mins);
                       }
                     });
}

void Builder::add_norm(const std::string& name) {
  const std::vector<float> ones(static_cast<size_t>(shape_.hidden), 1.0F);
  writer_.add_tensor(name, std::vector<int64_t>{shape_.hidden}, ones);
}

void Builder::add_tensors() {
  const int64_t hidden = shape_.hidden;
  const int64_t q_width = int64_t{shape_.n_heads} * shape_.head_dim;
  const int64_t kv_width = int64_t{shape_.n_kv_heads} * shape_.head_dim;
  constexpr float kHeadDeviation = 2.0F;
  add_matrix("token_embd.weight", shape_.n_vocab, hidden, kHeadDeviation);
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    const auto name = [&](const char* part) {
      return fmt::format("blk.{}.{}.weight", layer, part);
    };
    add_norm(name("attn_norm"));
    add_matrix(name("attn_q"), q_width, hidden);
    add_matrix(name("attn_k"), kv_width, hidden);
    add_matrix(name("attn_v"), kv_width, hidden);
    add_matrix(name("attn_output"), hidden, q_width);
    add_norm(name("ffn_norm"));
    add_matrix(name("ffn_gate"), shape_.ffn, hidden);
    add_matrix(name("ffn_up"), shape_.ffn, hidden);
    add_matrix(name("ffn_down"), hidden, shape_.ffn);
  }
  add_norm("output_norm.weight");
  if (!shape_.tied_head) {
    add_matrix("output.weight", shape_.n_vocab, hidden, kHeadDeviation);
  }
}

}  // namespace

std::span<const SyntheticShape> synthetic_shapes() { return kShapes; }

const SyntheticShape* find_synthetic_shape(std::string_view name) {
  const auto found = std::find_if(kShapes.begin(), kShapes.end(),
                                  [&](const SyntheticShape& shape) { return shape.name == name; });
  return found == kShapes.end() ? nullptr : &*found;
}

GgufWriter synthetic_model(const SyntheticShape& shape, TensorType type, uint64_t seed) {
  return Builder(shape, type, seed).build();
}

}  // namespace baton::testing
