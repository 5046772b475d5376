#include "model/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "model/golden.h"
#include "model/transformer.h"
#include "testing/corrupt.h"
#include "testing/gguf_writer.h"

namespace baton::model {
namespace {

using testing::GgufWriter;
using Bytes = std::vector<std::byte>;

constexpr int kVocab = 12;
constexpr int kHidden = 8;
constexpr int kHeads = 2;
constexpr int kKvHeads = 1;
constexpr int kHeadDim = 8;
constexpr int kFfn = 10;

void add_matrix(GgufWriter& writer, const std::string& name, int64_t n_out, int64_t n_in) {
  std::vector<float> values(size_t(n_out * n_in), 0.5F);
  writer.add_tensor(name, std::vector<int64_t>{n_out, n_in}, values);
}
void add_vector(GgufWriter& writer, const std::string& name, int64_t n) {
  writer.add_tensor(name, std::vector<int64_t>{n}, std::vector<float>(size_t(n), 1.0F));
}

/// A model of `n_layers` layers, small enough to be damaged byte by byte.
GgufWriter small_model(const std::string& architecture, int n_layers) {
  GgufWriter writer;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  writer.add("general.architecture", architecture).add("general.name", "small");
  writer.add(key("block_count"), uint32_t(n_layers)).add(key("context_length"), uint32_t{64});
  writer.add(key("embedding_length"), uint32_t{kHidden});
  writer.add(key("feed_forward_length"), uint32_t{kFfn});
  writer.add(key("attention.head_count"), uint32_t{kHeads});
  writer.add(key("attention.head_count_kv"), uint32_t{kKvHeads});
  writer.add(key("attention.key_length"), uint32_t{kHeadDim});
  writer.add(key("attention.value_length"), uint32_t{kHeadDim});
  writer.add(key("attention.layer_norm_rms_epsilon"), 1e-5F);
  add_matrix(writer, "token_embd.weight", kVocab, kHidden);
  add_vector(writer, "output_norm.weight", kHidden);
  for (int i = 0; i < n_layers; ++i) {
    const auto name = [&](const char* part) { return fmt::format("blk.{}.{}.weight", i, part); };
    add_vector(writer, name("attn_norm"), kHidden);
    add_matrix(writer, name("attn_q"), kHeads * kHeadDim, kHidden);
    add_matrix(writer, name("attn_k"), kKvHeads * kHeadDim, kHidden);
    add_matrix(writer, name("attn_v"), kKvHeads * kHeadDim, kHidden);
    add_matrix(writer, name("attn_output"), kHidden, kHeads * kHeadDim);
    add_vector(writer, name("ffn_norm"), kHidden);
    add_matrix(writer, name("ffn_gate"), kFfn, kHidden);
    add_matrix(writer, name("ffn_up"), kFfn, kHidden);
    add_matrix(writer, name("ffn_down"), kHidden, kFfn);
    if (architecture != "gemma3") continue;
    add_vector(writer, name("attn_q_norm"), kHeadDim);
    add_vector(writer, name("attn_k_norm"), kHeadDim);
    add_vector(writer, name("post_attention_norm"), kHidden);
    add_vector(writer, name("post_ffw_norm"), kHidden);
  }
  return writer;
}

/// Keeps the bytes alive beside the file that views them.
Result<Checkpoint> read(const Bytes& bytes) {
  struct Owned {
    Bytes bytes;
    std::optional<format::GgufFile> file;
  };
  auto owned = std::make_shared<Owned>();
  owned->bytes = bytes;
  auto file = format::GgufFile::parse(owned->bytes, "model.gguf");
  if (!file) return tl::unexpected(file.error());
  owned->file.emplace(std::move(*file));
  return read_checkpoint(std::shared_ptr<const format::GgufFile>(owned, &*owned->file));
}

ModelSpec spec_of(const GgufWriter& writer) {
  const auto checkpoint = read(writer.bytes());
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return checkpoint ? checkpoint->spec : ModelSpec{};
}

void expect_error(const GgufWriter& writer, std::string_view message) {
  const auto checkpoint = read(writer.bytes());
  ASSERT_FALSE(checkpoint) << "should fail with: " << message;
  EXPECT_EQ(checkpoint.error().message, "model.gguf: " + std::string(message));
}

TEST(Checkpoint, ReadsLlama) {
  const auto checkpoint = read(small_model("llama", 3).bytes());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const ModelSpec& spec = checkpoint->spec;
  EXPECT_EQ(spec.name, "small");
  EXPECT_EQ(spec.n_layers(), 3);
  EXPECT_EQ(spec.n_vocab, kVocab);
  EXPECT_EQ(spec.head_dim, kHeadDim);
  EXPECT_EQ(spec.qkv_width(), (kHeads + 2 * kKvHeads) * kHeadDim);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_FALSE(spec.qk_norms || spec.post_norms);
  EXPECT_EQ(spec.embedding_scale, 1.0F);
  EXPECT_FLOAT_EQ(spec.attention_scale, 1.0F / std::sqrt(8.0F));
  ASSERT_EQ(spec.ropes.size(), 1U);
  EXPECT_EQ(spec.ropes[0].style, linalg::RopeStyle::kInterleaved);
  EXPECT_EQ(spec.ropes[0].n_rot, kHeadDim);
  EXPECT_EQ(spec.ropes[0].base, 10000.0);
  EXPECT_EQ(checkpoint->head.data, checkpoint->embedding.data);
  EXPECT_EQ(checkpoint->layers[1].qkv.size(), 3U);
}

TEST(Checkpoint, Gemma3HasItsDefaults) {
  GgufWriter writer = small_model("gemma3", 7);
  writer.add("gemma3.attention.sliding_window", uint32_t{5});
  const ModelSpec spec = spec_of(writer);
  EXPECT_TRUE(spec.qk_norms && spec.post_norms && spec.tied_head);
  EXPECT_EQ(spec.activation, linalg::GatedActivation::kGeluTanh);
  EXPECT_FLOAT_EQ(spec.embedding_scale, std::sqrt(8.0F));
  ASSERT_EQ(spec.ropes.size(), 2U);
  EXPECT_EQ(spec.ropes[0].style, linalg::RopeStyle::kHalf);
  EXPECT_EQ(spec.ropes[0].base, 1e6);
  EXPECT_EQ(spec.ropes[1].base, 1e4);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(spec.layers[i].window, i == 5 ? 0 : 5) << i;
    EXPECT_EQ(spec.layers[i].rope, i == 5 ? 0 : 1) << i;
  }
}

TEST(Checkpoint, Gemma3PatternAndScalingFromTheFile) {
  GgufWriter writer = small_model("gemma3", 4);
  writer.add("gemma3.attention.sliding_window", uint32_t{5});
  writer.add("gemma3.attention.sliding_window_pattern", uint32_t{2});
  writer.add("gemma3.rope.freq_base", 5e5F).add("gemma3.rope.freq_base_swa", 2e4F);
  writer.add("gemma3.rope.scaling.type", "linear").add("gemma3.rope.scaling.factor", 8.0F);
  const ModelSpec spec = spec_of(writer);
  EXPECT_EQ(spec.layers[0].window, 5);
  EXPECT_EQ(spec.layers[1].window, 0);
  EXPECT_EQ(spec.ropes[0].base, 5e5);
  EXPECT_EQ(spec.ropes[0].linear_factor, 8.0);
  EXPECT_EQ(spec.ropes[1].base, 2e4);
  EXPECT_EQ(spec.ropes[1].linear_factor, 1.0);  // sliding layers are not scaled

  const Bytes list = {std::byte{7}, {}, {}, {}, std::byte{4}, {}, {}, {},
                      {},           {}, {}, {}, std::byte{1}, {}, {}, std::byte{1}};
  writer.remove("gemma3.attention.sliding_window_pattern");
  writer.add_raw("gemma3.attention.sliding_window_pattern", 9, list);
  const ModelSpec listed = spec_of(writer);
  EXPECT_EQ(listed.layers[0].window, 5);
  EXPECT_EQ(listed.layers[1].window, 0);
  EXPECT_EQ(listed.layers[2].window, 0);
  EXPECT_EQ(listed.layers[3].window, 5);
}

TEST(Checkpoint, InverseFrequencies) {
  RopeSpec rope{.n_rot = 4, .base = 100.0, .linear_factor = 2.0, .divisors = {1.0F, 4.0F}};
  const std::vector<double> f = inverse_frequencies(rope);
  ASSERT_EQ(f.size(), 2U);
  EXPECT_DOUBLE_EQ(f[0], 0.5);
  EXPECT_DOUBLE_EQ(f[1], 0.1 / 2.0 / 4.0);
}

TEST(Checkpoint, RopeFrequencyDivisors) {
  GgufWriter writer = small_model("llama", 1);
  writer.add_tensor("rope_freqs.weight", std::vector<int64_t>{4}, std::vector<float>{1, 2, 4, 8});
  EXPECT_EQ(spec_of(writer).ropes[0].divisors, (std::vector<float>{1, 2, 4, 8}));
  writer.remove_tensor("rope_freqs.weight");
  writer.add_tensor("rope_freqs.weight", std::vector<int64_t>{4}, std::vector<float>{1, 2, 0, 8});
  expect_error(writer, "tensor 'rope_freqs.weight' holds 0; all must be positive");
}

TEST(Checkpoint, NamesMissingAndMisshapenTensors) {
  GgufWriter writer = small_model("llama", 2);
  writer.remove_tensor("blk.1.attn_k.weight");
  expect_error(writer, "tensor 'blk.1.attn_k.weight' [8, 8] is missing");
  add_matrix(writer, "blk.1.attn_k.weight", 8, 9);
  expect_error(writer,
               "tensor 'blk.1.attn_k.weight' has shape [8, 9], but the metadata says [8, 8]");

  writer = small_model("llama", 1);
  writer.remove_tensor("blk.0.ffn_up.weight");
  writer.add_tensor("blk.0.ffn_up.weight", std::vector<int64_t>{kFfn, kHidden}, 24, Bytes(80));
  expect_error(writer, "tensor 'blk.0.ffn_up.weight' has type I8, which is not supported");

  writer = small_model("llama", 1);
  add_vector(writer, "blk.0.attn_q.bias", 16);
  expect_error(writer, "tensor 'blk.0.attn_q.bias' [16] is not one that llama models have here");

  writer = small_model("llama", 1);
  writer.remove_tensor("token_embd.weight");
  expect_error(writer, "tensor 'token_embd.weight' is missing");

  writer = small_model("llama", 1);
  writer.remove_tensor("output_norm.weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  writer.add_tensor("output_norm.weight", std::vector<int64_t>{8}, std::vector<float>(8, nan));
  expect_error(writer, "tensor 'output_norm.weight' holds a value that is not finite");
}

TEST(Checkpoint, ChecksMetadata) {
  // One key replaced at a time.
  const auto with = [](const char* key, auto value) {
    GgufWriter writer = small_model("llama", 1);
    writer.remove(key).add(key, value);
    return writer;
  };
  expect_error(with("general.architecture", "rwkv"),
               "architecture 'rwkv' is not supported (supported: llama, gemma3)");
  expect_error(with("llama.block_count", uint32_t{0}),
               "metadata key 'llama.block_count' is 0; it must be in 1 … 1024");
  expect_error(with("llama.block_count", uint32_t{4000000000U}),
               "metadata key 'llama.block_count' is 4000000000; it must be in 1 … 1024");
  expect_error(with("llama.block_count", "one"),
               "metadata key 'llama.block_count' has type string, but should hold an integer");
  expect_error(with("llama.context_length", int32_t{-5}),
               "metadata key 'llama.context_length' is -5; it must be in 1 … 16777216");
  expect_error(with("llama.attention.head_count_kv", uint32_t{3}),
               "'llama.attention.head_count_kv' is 3, which does not divide the 2 heads");
  expect_error(
      with("llama.attention.key_length", uint32_t{16}),
      "'llama.attention.key_length' is 16 and 'llama.attention.value_length' is 8: they must "
      "be equal");
  expect_error(with("llama.rope.dimension_count", uint32_t{10}),
               "'llama.rope.dimension_count' is 10; it must be even and at most 8");
  expect_error(with("llama.rope.freq_base", std::numeric_limits<float>::quiet_NaN()),
               "metadata key 'llama.rope.freq_base' is nan; it must be in 1 … 1000000000000");
  expect_error(with("llama.rope.scaling.type", "yarn"),
               "'llama.rope.scaling.type' is 'yarn'; 'none' and 'linear' are supported");
  expect_error(with("llama.expert_count", uint32_t{8}),
               "'llama.expert_count' is set: mixture-of-experts models are not supported");
  expect_error(with("llama.vocab_size", uint32_t{13}),
               "'llama.vocab_size' is 13, but tensor 'token_embd.weight' has shape [12, 8]");
  expect_error(with("llama.attention.sliding_window", uint32_t{4}),
               "'llama.attention.sliding_window' is 4, but llama has no sliding layers");
  expect_error(with("split.count", uint16_t{3}),
               "is one of 3 parts of a split model; merge them into one");
  GgufWriter missing = small_model("llama", 1);
  expect_error(missing.remove("llama.embedding_length"),
               "metadata key 'llama.embedding_length' is missing");
}

TEST(Checkpoint, MemoryNeedsAndTypes) {
  const auto checkpoint = read(small_model("llama", 2).bytes());
  ASSERT_TRUE(checkpoint);
  const MemoryNeeds needs = memory_needs(*checkpoint, linalg::KernelSet::kAvx512);
  const size_t n_values = 2 * (32 * 8 + 8 * 16 + 20 * 8 + 8 * 10);
  EXPECT_EQ(needs.head_bytes, 12U * 8 * 4);
  EXPECT_EQ(needs.reference_weights_bytes, (n_values + 12 * 8) * 4);
  EXPECT_EQ(needs.prefill_weights_bytes, n_values * 2);
  EXPECT_EQ(needs.decode_weights_bytes, n_values * 4);
  EXPECT_EQ(needs.both_weights_bytes, n_values * 6);  // the file's type is a float one
  EXPECT_EQ(needs.kv_bytes_per_token_bf16, 2U * 2 * 1 * 8 * 2);
  EXPECT_EQ(needs.kv_bytes_per_token_f32, 2U * 2 * 1 * 8 * 4);
  const auto types = tensor_types(*checkpoint->file);
  ASSERT_EQ(types.size(), 1U);
  EXPECT_EQ(types.at("F32").n_tensors, 2 + 2 * 9);
  EXPECT_EQ(types.at("F32").bytes, needs.file_bytes);
}

/// Builds the model and runs a token, so that damage that got through the checks is touched.
void run_one_token(Checkpoint checkpoint) {
  ThreadPool pool(ThreadPoolOptions{.n_threads = 1, .cpus = {}});
  linalg::Workspace workspace;
  linalg::Context context{linalg::KernelSet::kReference, pool, workspace};
  auto model = Transformer::create(context, std::move(checkpoint), {});
  if (!model) return;
  const kv::KvLayout layout = (*model)->kv_layout(1, TensorType::kF32);
  std::vector<std::byte> memory(layout.total_bytes());
  (*model)->bind_kv(layout, memory.data());
  const BlockId block{0};
  const TokenId token = 0;
  std::vector<float> logits(size_t((*model)->n_vocab()));
  const SeqSlice slice{{&block, 1}, 0, {&token, 1}, linalg::KernelClass::kDecode, 1};
  (*model)->forward({&slice, 1}, logits.data());
}

TEST(Checkpoint, CorruptFilesNeverCrash) {
  int n_refused = 0;
  int n_run = 0;
  for (const char* architecture : {"llama", "gemma3"}) {
    const Bytes good = small_model(architecture, 1).bytes();
    ASSERT_TRUE(read(good));
    for (const auto& variant : testing::corruptions(good, good.size() - 2600, 400, 7)) {
      SCOPED_TRACE(variant.what);
      auto checkpoint = read(variant.bytes);
      if (checkpoint) {
        ++n_run;
        run_one_token(std::move(*checkpoint));
      } else {
        ++n_refused;
        EXPECT_EQ(checkpoint.error().message.find("model.gguf: "), 0U)
            << checkpoint.error().message;
        EXPECT_EQ(checkpoint.error().message.find('\n'), std::string::npos);
      }
    }
  }
  EXPECT_GT(n_refused, 300);
  EXPECT_GT(n_run, 50);
}

TEST(Transformer, RefusesALongerContextThanTheModels) {
  auto checkpoint = read(small_model("llama", 1).bytes());
  ASSERT_TRUE(checkpoint);
  ThreadPool pool(ThreadPoolOptions{.n_threads = 1, .cpus = {}});
  linalg::Workspace workspace;
  linalg::Context context{linalg::KernelSet::kReference, pool, workspace};
  const auto model = Transformer::create(context, *checkpoint, {.context_length = 65});
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message,
            "model.gguf: a context of 65 tokens was asked for; the model has 64");
  const auto shorter = Transformer::create(context, *checkpoint, {.context_length = 32});
  ASSERT_TRUE(shorter);
  EXPECT_EQ((*shorter)->context_length(), 32);
}

}  // namespace
}  // namespace baton::model
