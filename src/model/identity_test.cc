#include "model/identity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "model/golden.h"

namespace baton::model {
namespace {

using linalg::KernelSet;

class Identity : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = golden_dir() + "/tiny/llama/model-bf16.gguf";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: no " << path;
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    bytes_.assign(data, data + text.size());
  }
  /// Of the file as it is now.
  std::string identity(KernelSet kernels = KernelSet::kPortable) {
    return kv_identity(read_checkpoint(parse()).value(), kernels);
  }
  std::shared_ptr<const format::GgufFile> parse() {
    return std::make_shared<const format::GgufFile>(
        format::GgufFile::parse(bytes_, "model.gguf").value());
  }
  std::vector<std::byte> bytes_;
};

TEST_F(Identity, IsTheSameForTheSameFile) {
  const std::string first = identity();
  EXPECT_EQ(identity(), first);
  EXPECT_NE(first.find("llama '"), std::string::npos) << first;
  EXPECT_NE(first.find(", portable kernels"), std::string::npos) << first;
}

TEST_F(Identity, KernelSetsAreNotInterchangeable) {
  EXPECT_NE(identity(KernelSet::kPortable), identity(KernelSet::kAvx512));
}

TEST_F(Identity, NamesActivationsThatAreNotTheUsualOnes) {
  const Checkpoint checkpoint = read_checkpoint(parse()).value();
  const auto with = [&](linalg::ActivationType prefill) {
    return kv_identity(checkpoint, KernelSet::kPortable, prefill);
  };
  EXPECT_EQ(with(linalg::ActivationType::kInt16), identity());
  EXPECT_EQ(with(linalg::ActivationType::kInt8), identity() + ", int8 prefill activations");
}

TEST_F(Identity, SeesTheEndsOfEveryTensor) {
  const std::string whole = identity();
  const auto file = parse();
  for (const format::TensorView& tensor : file->tensors()) {
    const auto at = static_cast<size_t>(tensor.data.data() - bytes_.data());
    for (const size_t i : {at, at + tensor.data.size() - 1}) {
      bytes_[i] ^= std::byte{1};
      EXPECT_NE(identity(), whole) << tensor.name;
      bytes_[i] ^= std::byte{1};
    }
  }
  EXPECT_EQ(identity(), whole);
}

TEST_F(Identity, SeesWhatTheForwardPassIsToldBesides) {
  Checkpoint checkpoint = read_checkpoint(parse()).value();
  const std::string whole = kv_identity(checkpoint, KernelSet::kPortable);
  const auto differs = [&](auto&& change) {
    Checkpoint other = checkpoint;
    change(other.spec);
    return kv_identity(other, KernelSet::kPortable) != whole;
  };
  EXPECT_TRUE(differs([](ModelSpec& spec) { spec.ropes[0].base += 1; }));
  EXPECT_TRUE(differs([](ModelSpec& spec) { spec.ropes[0].linear_factor *= 2; }));
  EXPECT_TRUE(differs([](ModelSpec& spec) { spec.ropes[0].divisors.push_back(2); }));
  EXPECT_TRUE(differs([](ModelSpec& spec) { spec.norm_eps *= 2; }));
  EXPECT_TRUE(differs([](ModelSpec& spec) { spec.attention_scale *= 2; }));
  EXPECT_TRUE(differs([](ModelSpec& spec) { spec.layers[0].window = 8; }));
  EXPECT_FALSE(differs([](ModelSpec& spec) { spec.context_length /= 2; })) << "no KV depends on it";
}

}  // namespace
}  // namespace baton::model
