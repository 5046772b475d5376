#include "linalg/packed_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "linalg/test_sets.h"
#include "linalg/tile_pack.h"

namespace baton::linalg {
namespace {

namespace fs = std::filesystem;

constexpr TensorType kTypes[] = {TensorType::kBF16, TensorType::kQ4_1, TensorType::kQ5_0,
                                 TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K};
constexpr int64_t kIn = 512;
constexpr int64_t kOut = 1000;

/// Four stacks of matrices, and a folder for their packed bytes.
class PackedFileTest : public testing::Test {
 protected:
  PackedFileTest() {
    folder_ = fs::temp_directory_path() / fmt::format("packed_file_test-{}", ::getpid());
    fs::create_directories(folder_);
    for (const TensorType type : kTypes) {
      offsets_.push_back(source_.size());
      source_.resize(source_.size() + row_bytes(type, kIn) * kOut);
    }
    std::mt19937 random(3);
    for (auto& b : source_) b = static_cast<std::byte>(random() & 0x3F);  // no NaN in any type
  }
  ~PackedFileTest() override { fs::remove_all(folder_); }

  [[nodiscard]] std::vector<std::vector<MatrixView>> stacks() const {
    std::vector<std::vector<MatrixView>> out;
    for (size_t i = 0; i < std::size(kTypes); ++i) {
      out.push_back({{kTypes[i], kOut, kIn, source_.data() + offsets_[i]}});
    }
    out[1].push_back(out[2][0]);
    return out;
  }
  [[nodiscard]] std::string path() const { return (folder_ / "sub" / "model.packed").string(); }

  struct Packed {
    Status status;
    bool complete;
    bool saved;
    std::string save_error;
    std::vector<std::vector<float>> products;
  };
  /// A start: packs all stacks, or finds them in the file; then one product with each.
  Packed start(KernelSet set, KernelClass kernel_class, const std::string& path,
               size_t min_bytes = 0, int n_threads = 2) {
    ThreadPool pool({n_threads, {}});
    Workspace workspace;
    Context context{set, pool, workspace};
    PackedFile file(context, {path, source_.data(), min_bytes});
    Packed out{file.status(), false, false, {}, {}};
    std::vector<float> x(3 * kIn);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0F;
    for (const auto& stacked : stacks()) {
      auto linear = make_linear(context, kernel_class, stacked, &file);
      EXPECT_TRUE(linear) << linear.error().message;
      out.products.emplace_back(static_cast<size_t>(3 * (*linear)->n_out()));
      (*linear)->apply(context, x.data(), 3, out.products.back().data());
    }
    out.complete = file.complete() && file.bytes() > 0;
    const auto saved = file.save(context);
    out.saved = saved.value_or(false);
    if (!saved) out.save_error = saved.error().message;
    return out;
  }
  Packed start() { return start(runnable_sets().back(), KernelClass::kDecode, path()); }
  std::string read() {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
  }
  [[nodiscard]] size_t n_files() const {
    const fs::path sub = folder_ / "sub";
    return static_cast<size_t>(std::distance(fs::directory_iterator(sub), {}));
  }

  fs::path folder_;
  std::vector<std::byte> source_;
  std::vector<size_t> offsets_;
};

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return a.size() == b.size();
}

class PackedFileOfASet : public PackedFileTest, public testing::WithParamInterface<KernelSet> {};

TEST_P(PackedFileOfASet, GivesTheSameBits) {
  for (const KernelClass kernel_class : {KernelClass::kDecode, KernelClass::kPrefill}) {
    const Packed without = start(GetParam(), kernel_class, "");
    EXPECT_FALSE(without.saved);
    const std::string path = fmt::format("{}-{}", this->path(), static_cast<int>(kernel_class));
    const Packed first = start(GetParam(), kernel_class, path);
    const Packed second = start(GetParam(), kernel_class, path, 0, 3);
    EXPECT_TRUE(same_bits(without.products, first.products));
    EXPECT_TRUE(same_bits(without.products, second.products));
    // Rows that are kept as in the file, and the yardstick's float32, are not worth a file.
    const bool kept = GetParam() >= KernelSet::kAvx2 ||
                      (GetParam() == KernelSet::kPortable && kernel_class == KernelClass::kPrefill);
    EXPECT_EQ(first.saved, kept);
    EXPECT_FALSE(first.complete);
    EXPECT_EQ(second.complete, kept);
    EXPECT_FALSE(second.saved);
  }
}

INSTANTIATE_TEST_SUITE_P(, PackedFileOfASet, testing::ValuesIn(runnable_sets()), SetName());

TEST_F(PackedFileTest, AnotherLayoutIsPackedAnewAndReplacesIt) {
  if (runnable_sets().back() < KernelSet::kAvx2) GTEST_SKIP() << "skipped: needs strips";
  const Packed first = start();
  const Packed prefill = start(KernelSet::kPortable, KernelClass::kPrefill, path());
  EXPECT_TRUE(prefill.status);
  EXPECT_FALSE(prefill.complete);
  EXPECT_TRUE(prefill.saved);
  EXPECT_TRUE(start(KernelSet::kPortable, KernelClass::kPrefill, path()).complete);
}

TEST_F(PackedFileTest, WhatIsDamagedIsFoundAndReplaced) {
  if (runnable_sets().back() < KernelSet::kAvx2) GTEST_SKIP() << "skipped: needs strips";
  const Packed want = start();
  const std::string good = read();
  const size_t data = size_t{2} << 20;
  ASSERT_GT(good.size(), data);
  const auto flipped = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    return bytes;
  };
  std::vector<std::pair<std::string, const char*>> damaged = {
      {"", "not a file of packed weights"},
      {"GGUF and something else", "not a file of packed weights"},
      {flipped(0), "not a file of packed weights"},
      {flipped(8), "packed by version 17, this one is 1"},
      {good.substr(0, 100), "100 bytes, "},
      {good.substr(0, good.size() - 1), "were written"},
      {good + "x", "were written"},
      {good.substr(0, 200) + std::string(good.size() - 200, '\0'), "the table is not"},
      {good.substr(0, data) + std::string(good.size() - data, '\0'), "the weights are not"},
      {flipped(good.size() - kIn), "the weights are not what was written"}};
  for (size_t at = 12; at < 12 + 5 * 8; at += 3)
    damaged.emplace_back(flipped(at), "model.packed: ");
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) damaged.emplace_back(flipped(48 + random() % 150), "the table is");
  for (const auto& [bytes, why] : damaged) {
    write(bytes);
    const Packed got = start();
    ASSERT_FALSE(got.status) << why;
    EXPECT_NE(got.status.error().message.find(why), std::string::npos)
        << got.status.error().message;
    EXPECT_TRUE(same_bits(got.products, want.products));
    EXPECT_TRUE(got.saved);
    EXPECT_EQ(read(), good);
  }
  fs::rename(path(), folder_ / "sub" / "other.packed");
  const Packed renamed = start(runnable_sets().back(), KernelClass::kDecode,
                               (folder_ / "sub" / "other.packed").string());
  ASSERT_FALSE(renamed.status);
  EXPECT_NE(renamed.status.error().message.find("written under another name"), std::string::npos);
}

TEST_F(PackedFileTest, WritersAtOnceDoNotMeet) {
  if (runnable_sets().back() < KernelSet::kAvx2) GTEST_SKIP() << "skipped: needs strips";
  const Packed want = start();
  std::vector<std::thread> threads;
  std::atomic<int> n_wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        if (t < 2) fs::remove(path());
        const Packed got = start();
        const bool whole = got.status || got.status.error().code == ErrorCode::kNotFound;
        if (!whole || !got.save_error.empty() || !same_bits(got.products, want.products)) ++n_wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0);
  EXPECT_TRUE(start().complete);
  EXPECT_EQ(n_files(), 1U) << "nothing temporary is left";
}

TEST_F(PackedFileTest, WhatCannotBeWrittenIsSaidAndLeavesNothing) {
  if (runnable_sets().back() < KernelSet::kAvx2) GTEST_SKIP() << "skipped: needs strips";
  std::ofstream(folder_ / "file") << "no folder";
  const Packed nowhere =
      start(runnable_sets().back(), KernelClass::kDecode, (folder_ / "file" / "x.packed").string());
  EXPECT_EQ(nowhere.status.error().code, ErrorCode::kNotFound);
  EXPECT_NE(nowhere.save_error.find("file/x.packed: can't write: Not a directory"),
            std::string::npos)
      << nowhere.save_error;
  // A disk that fills up.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = size_t{3} << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Packed full = start();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  (void)std::signal(SIGXFSZ, before);
  EXPECT_NE(full.save_error.find("can't write: File too large"), std::string::npos);
  EXPECT_EQ(n_files(), 0U);
  // Neither is a folder in the file's place replaced.
  fs::create_directories(path());
  const Packed blocked = start();
  EXPECT_EQ(blocked.status.error().code, ErrorCode::kIo);
  EXPECT_FALSE(blocked.saved);
  EXPECT_EQ(blocked.save_error, "");
}

TEST_F(PackedFileTest, LittleIsNotWritten) {
  if (runnable_sets().back() < KernelSet::kAvx2) GTEST_SKIP() << "skipped: needs strips";
  EXPECT_FALSE(start(runnable_sets().back(), KernelClass::kDecode, path(), 1 << 30).saved);
  EXPECT_FALSE(fs::exists(path()));
}

// If this fails because strips are laid out in another way: raise kPackedVersion, and put the new
// number here. (Panels: their layout is oneDNN's, and part of the sections' keys.)
TEST_F(PackedFileTest, LayoutsAreThoseOfTheVersion) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const auto& stacked : stacks()) {
    std::vector<uint8_t> strip(static_cast<size_t>(strip_bytes(stacked[0].type, kIn)));
    for (const int64_t first : {0, 992}) {
      pack_strip(stacked[0], first, strip.data());
      for (const uint8_t b : strip) hash = (hash ^ b) * 1099511628211U;
    }
  }
  EXPECT_EQ(kPackedVersion, 1U);
  EXPECT_EQ(hash, 7661891006112238710U);
}

}  // namespace
}  // namespace baton::linalg
