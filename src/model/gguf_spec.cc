#include "model/gguf_spec.h"

#include <algorithm>
#include <cmath>

#include "model/architectures.h"
#include "model/checkpoint.h"

namespace baton::model {
namespace {

using format::GgufMetadata;

// Sane ranges: far beyond every published model, far below what overflows anything computed from
// them.
constexpr int kMaxLayers = 1024;
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxHeads = 4096;
constexpr int kMaxHeadDim = 4096;
constexpr int kMaxContext = 1 << 24;
constexpr int kMaxVocab = 1 << 24;

/// Reads the keys "<architecture>.<name>" and collects the first error, so that a reader is a list
/// of assignments and one check at its end. Lives for one spec_from_gguf().
class KeyReader {
 public:
  KeyReader(const format::GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  [[nodiscard]] std::string key(std::string_view name) const {
    return fmt::format("{}.{}", architecture_, name);
  }
  [[nodiscard]] bool has(std::string_view name) const {
    return file_.metadata().contains(key(name));
  }

  /// An integer in [least, most]; absent: `fallback`, or an error if that is negative.
  int integer(std::string_view name, int least, int most, int fallback = -1) {
    if (fallback >= 0 && !has(name)) return fallback;
    const auto value = file_.metadata().get<int64_t>(key(name));
    if (!value) return take_error(value.error(), least);
    if (*value < least || *value > most) {
      return take_error(out_of_range(name, fmt::format("{}", *value), least, most), least);
    }
    return static_cast<int>(*value);
  }
  /// A finite number in [least, most]; absent: `fallback`, or an error if that is negative.
  double number(std::string_view name, double least, double most, double fallback = -1.0) {
    if (fallback >= 0 && !has(name)) return fallback;
    const auto value = file_.metadata().get<double>(key(name));
    if (!value) return take_error(value.error(), least);
    // Written so that NaN fails.
    if (!(*value >= least && *value <= most)) {
      return take_error(out_of_range(name, fmt::format("{}", *value), least, most), least);
    }
    return *value;
  }
  std::string text(std::string_view name, std::string_view fallback) {
    const auto value = file_.metadata().get_or<std::string_view>(key(name), fallback);
    if (!value) return take_error(value.error(), std::string());
    return std::string(*value);
  }
  template <typename... Args>
  void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    take_error(Error{code, fmt::format("{}: {}", file_.path(),
                                       fmt::format(format, std::forward<Args>(args)...))},
               0);
  }
  template <typename T>
  T take_error(Error error, T value) {
    if (ok_) error_ = std::move(error);
    ok_ = false;
    return value;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] const format::GgufFile& file() const { return file_; }

 private:
  template <typename T>
  Error out_of_range(std::string_view name, const std::string& value, T least, T most) const {
    return Error{ErrorCode::kCorrupt,
                 fmt::format("{}: metadata key '{}' is {}; it must be in {} … {}", file_.path(),
                             key(name), value, least, most)};
  }

  const format::GgufFile& file_;
  std::string architecture_;
  bool ok_ = true;
  Error error_;
};

/// What these files may say that this build would compute wrongly.
void refuse_unsupported(KeyReader& keys) {
  if (keys.integer("expert_count", 0, kMaxHeads, 0) > 0) {
    keys.refuse(ErrorCode::kUnsupported, "'{}' is set: mixture-of-experts models are not supported",
                keys.key("expert_count"));
  }
  for (const std::string_view cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (keys.number(cap, 0.0, 1e9, 0.0) > 0.0) {
      keys.refuse(ErrorCode::kUnsupported, "'{}' is set: soft caps are not supported",
                  keys.key(cap));
    }
  }
  const auto n_files = keys.file().metadata().get_or<int64_t>("split.count", 1);
  if (!n_files) {
    keys.take_error(n_files.error(), 0);
  } else if (*n_files > 1) {
    keys.refuse(ErrorCode::kUnsupported, "is one of {} parts of a split model; merge them into one",
                *n_files);
  }
}

void read_sizes(KeyReader& keys, ModelSpec& spec) {
  spec.layers.resize(static_cast<size_t>(keys.integer("block_count", 1, kMaxLayers)));
  spec.context_length = keys.integer("context_length", 1, kMaxContext);
  spec.hidden = keys.integer("embedding_length", 1, kMaxWidth);
  spec.ffn = keys.integer("feed_forward_length", 1, kMaxWidth);
  spec.n_heads = keys.integer("attention.head_count", 1, kMaxHeads);
  spec.n_kv_heads = keys.integer("attention.head_count_kv", 1, kMaxHeads, spec.n_heads);
  if (!keys.ok()) return;
  if (spec.n_heads % spec.n_kv_heads != 0) {
    keys.refuse(ErrorCode::kCorrupt, "'{}' is {}, which does not divide the {} heads",
                keys.key("attention.head_count_kv"), spec.n_kv_heads, spec.n_heads);
  }
  spec.head_dim = keys.integer("attention.key_length", 2, kMaxHeadDim, spec.hidden / spec.n_heads);
  const int value_length =
      keys.integer("attention.value_length", 2, kMaxHeadDim, spec.hidden / spec.n_heads);
  if (!keys.ok()) return;
  if (spec.head_dim != value_length) {
    keys.refuse(ErrorCode::kUnsupported, "'{}' is {} and '{}' is {}: they must be equal",
                keys.key("attention.key_length"), spec.head_dim, keys.key("attention.value_length"),
                value_length);
  }
  // What the attention kernels can do; no published model is narrower.
  if (spec.head_dim == 0 || spec.head_dim % 8 != 0) {
    keys.refuse(ErrorCode::kUnsupported, "heads have {} values; a multiple of 8 is needed",
                spec.head_dim);
  }
  if (spec.qkv_width() > kMaxWidth) {
    keys.refuse(ErrorCode::kCorrupt, "q, k and v have {} values together; at most {} are possible",
                spec.qkv_width(), kMaxWidth);
  }
}

/// The vocabulary's size is the embedding's: the key is often absent, and must not differ where it
/// is there.
void read_vocabulary(KeyReader& keys, ModelSpec& spec) {
  const format::TensorView* embedding = keys.file().tensor("token_embd.weight");
  if (embedding == nullptr) {
    keys.refuse(ErrorCode::kNotFound, "tensor 'token_embd.weight' is missing");
    return;
  }
  const int64_t n_rows = embedding->shape.front();
  if (embedding->shape.size() != 2 || n_rows > kMaxVocab) {
    keys.refuse(ErrorCode::kCorrupt,
                "tensor 'token_embd.weight' has shape {}; it must be [vocabulary ≤ {}, {}]",
                format::shape_name(embedding->shape), kMaxVocab, spec.hidden);
    return;
  }
  spec.n_vocab = static_cast<int>(n_rows);
  const int declared = keys.integer("vocab_size", 1, kMaxVocab, spec.n_vocab);
  if (keys.ok() && declared != spec.n_vocab) {
    keys.refuse(ErrorCode::kCorrupt, "'{}' is {}, but tensor 'token_embd.weight' has shape {}",
                keys.key("vocab_size"), declared, format::shape_name(embedding->shape));
  }
}

/// True for the layers that slide: from the file's own pattern (a period or a list), else the
/// architecture's.
std::vector<bool> sliding_layers(KeyReader& keys, const Architecture& architecture,
                                 size_t n_layers) {
  const std::string name = "attention.sliding_window_pattern";
  std::vector<bool> slides(n_layers, false);
  const auto* pattern = keys.file().metadata().find(keys.key(name));
  if (pattern != nullptr && pattern->type() == format::GgufType::kArray) {
    const auto listed = keys.file().metadata().get<std::vector<bool>>(keys.key(name));
    if (!listed) return keys.take_error(listed.error(), slides);
    if (listed->size() != n_layers) {
      keys.refuse(ErrorCode::kCorrupt, "'{}' has {} elements for {} layers", keys.key(name),
                  listed->size(), n_layers);
      return slides;
    }
    return *listed;
  }
  const int period = keys.integer(name, 0, kMaxLayers, architecture.sliding_period);
  for (size_t i = 0; i < n_layers && period > 0; ++i) {
    slides[i] = (static_cast<int>(i) + 1) % period != 0;
  }
  return slides;
}

/// Full layers use rope 0, with the file's base and scaling; sliding ones rope 1, with its own base
/// and none.
void read_ropes(KeyReader& keys, const Architecture& architecture, ModelSpec& spec) {
  RopeSpec rope;
  rope.style = architecture.rope_style;
  rope.n_rot = keys.integer("rope.dimension_count", 2, kMaxHeadDim, spec.head_dim);
  if (keys.ok() && (rope.n_rot % 2 != 0 || rope.n_rot > spec.head_dim)) {
    keys.refuse(ErrorCode::kCorrupt, "'{}' is {}; it must be even and at most {}",
                keys.key("rope.dimension_count"), rope.n_rot, spec.head_dim);
  }
  rope.base = keys.number("rope.freq_base", 1.0, 1e12, architecture.rope_base);
  const std::string scaling = keys.text("rope.scaling.type", "none");
  // Files older than rope.scaling.type carry the factor as rope.scale_linear.
  const char* factor_key = scaling == "linear" ? "rope.scaling.factor" : "rope.scale_linear";
  if (scaling != "linear" && scaling != "none") {
    keys.refuse(ErrorCode::kUnsupported, "'{}' is {}; 'none' and 'linear' are supported",
                keys.key("rope.scaling.type"), format::quoted(scaling));
  }
  rope.linear_factor = keys.number(factor_key, 0.0, 1e6, 1.0);
  // Converters wrote 0 for "no scaling".
  if (rope.linear_factor == 0.0) rope.linear_factor = 1.0;
  if (keys.ok() && rope.linear_factor < 1e-6) {
    keys.refuse(ErrorCode::kCorrupt, "'{}' is {}", keys.key(factor_key), rope.linear_factor);
  }
  spec.ropes = {rope};

  const int window = keys.integer("attention.sliding_window", 0, kMaxContext, 0);
  if (window == 0) return;
  if (architecture.sliding_period == 0) {
    keys.refuse(ErrorCode::kUnsupported, "'{}' is {}, but {} has no sliding layers",
                keys.key("attention.sliding_window"), window, architecture.name);
    return;
  }
  const std::vector<bool> slides = sliding_layers(keys, architecture, spec.layers.size());
  rope.base = keys.number("rope.freq_base_swa", 1.0, 1e12, architecture.sliding_rope_base);
  rope.linear_factor = 1.0;
  spec.ropes.push_back(rope);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (slides[i]) spec.layers[i] = {.window = window, .rope = 1};
  }
}

void read_scales(KeyReader& keys, const Architecture& architecture, ModelSpec& spec) {
  spec.norm_eps = static_cast<float>(keys.number("attention.layer_norm_rms_epsilon", 1e-12, 0.1));
  if (architecture.scaled_embedding) {
    spec.embedding_scale = std::sqrt(static_cast<float>(spec.hidden));
  }
  // Gemma-3-27B alone divides by hidden / heads; GGUF has no key for it (llama.cpp tells it by its
  // layers too).
  const bool is_27b = architecture.name == "gemma3" && spec.n_layers() == 62;
  const int scale_width = is_27b ? spec.hidden / spec.n_heads : spec.head_dim;
  spec.attention_scale = static_cast<float>(
      keys.number("attention.scale", 1e-6, 1e6,
                  1.0 / std::sqrt(static_cast<double>(std::max(scale_width, 1)))));
}

}  // namespace

std::string supported_architectures() {
  std::string out;
  for (const Architecture& a : architectures()) {
    if (!out.empty()) out += ", ";
    out += a.name;
  }
  return out;
}

Result<ModelSpec> spec_from_gguf(const format::GgufFile& file) {
  const auto name = file.metadata().get<std::string_view>("general.architecture");
  if (!name) return tl::unexpected(name.error());
  const Architecture* architecture = find_architecture(*name);
  if (architecture == nullptr) {
    return fail(ErrorCode::kUnsupported, "{}: architecture {} is not supported (supported: {})",
                file.path(), format::quoted(*name), supported_architectures());
  }
  ModelSpec spec;
  spec.architecture = *name;
  spec.activation = architecture->activation;
  spec.qk_norms = architecture->qk_norms;
  spec.post_norms = architecture->post_norms;
  spec.tied_head = file.tensor("output.weight") == nullptr;
  if (const auto title = file.metadata().get<std::string_view>("general.name")) spec.name = *title;

  KeyReader keys(file, spec.architecture);
  refuse_unsupported(keys);
  read_sizes(keys, spec);
  if (!keys.ok()) return tl::unexpected(keys.error());
  read_vocabulary(keys, spec);
  read_ropes(keys, *architecture, spec);
  read_scales(keys, *architecture, spec);
  if (!keys.ok()) return tl::unexpected(keys.error());
  return spec;
}

}  // namespace baton::model
