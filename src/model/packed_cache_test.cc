#include "model/packed_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "model/golden.h"
#include "model/loaded_model.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;
using linalg::KernelClass;

class PackedCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const fs::path golden = golden_dir() + "/tiny/quant/Q4_K_M.gguf";
    if (!fs::exists(golden)) GTEST_SKIP() << "skipped: no " << golden;
    if (runnable_kernels().back() < linalg::KernelSet::kAvx2) GTEST_SKIP() << "skipped: no strips";
    folder_ = fs::temp_directory_path() / fmt::format("packed_cache_test-{}", ::getpid());
    fs::create_directories(cache());
    fs::copy_file(golden, model());
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] fs::path cache() const { return folder_ / "packed"; }
  [[nodiscard]] fs::path model() const { return folder_ / "model.gguf"; }

  struct Started {
    bool cached;
    std::vector<float> logits;
  };
  Started start(bool prefill = true, bool decode = true, PackedCacheOptions cache_options = {}) {
    LoadOptions options{.kernels = runnable_kernels().back(), .n_threads = 2};
    options.transformer.with_prefill_weights = prefill;
    options.transformer.with_decode_weights = decode;
    options.transformer.packed_cache = std::move(cache_options);
    auto loaded = LoadedModel::load(model().string(), options);
    EXPECT_TRUE(loaded) << loaded.error().message;
    const std::vector<TokenId> ids = {5, 9, 33, 7, 100, 101};
    Started out{(*loaded)->model().weights_cached(), {}};
    for (const KernelClass c : {KernelClass::kPrefill, KernelClass::kDecode}) {
      if (c == KernelClass::kPrefill ? !prefill : !decode) continue;
      const auto logits = (*loaded)->all_logits(ids, c, 4);
      out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    }
    return out;
  }
  Started start_cached(bool prefill = true, bool decode = true, uint64_t max_bytes = 1 << 30) {
    return start(prefill, decode, {cache().string(), 0, max_bytes});
  }
  [[nodiscard]] std::set<std::string> files() const {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(cache())) out.insert(entry.path().filename());
    return out;
  }

  fs::path folder_;
};

TEST_F(PackedCacheTest, TheSecondStartReadsAndHasTheSameBits) {
  const Started off = start();
  EXPECT_FALSE(off.cached);
  EXPECT_FALSE(start(true, true, {cache().string(), size_t{1} << 30, 0}).cached);
  EXPECT_TRUE(files().empty()) << "too little to be worth it";
  const Started first = start_cached();
  const Started second = start_cached();
  EXPECT_FALSE(first.cached);
  EXPECT_TRUE(second.cached);
  for (const Started* started : {&first, &second}) {
    ASSERT_EQ(started->logits.size(), off.logits.size());
    EXPECT_EQ(
        std::memcmp(started->logits.data(), off.logits.data(), off.logits.size() * sizeof(float)),
        0);
  }
}

TEST_F(PackedCacheTest, RolesFindWhatTheOthersWrote) {
  (void)start_cached(true, true);
  const auto written = files();
  EXPECT_TRUE(start_cached(true, false).cached);
  EXPECT_TRUE(start_cached(false, true).cached);
  EXPECT_EQ(files(), written);
  fs::remove_all(cache());
  fs::create_directories(cache());
  (void)start_cached(true, false);
  (void)start_cached(false, true);
  EXPECT_TRUE(start_cached(true, true).cached);
  EXPECT_EQ(files(), written);
}

TEST_F(PackedCacheTest, AChangedFileIsAnother) {
  (void)start_cached();
  const auto times = fs::last_write_time(model());
  std::fstream out(model(), std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(-20000, std::ios::end);
  out.put('\1');
  out.close();
  fs::last_write_time(model(), times);
  const Started changed = start_cached();
  EXPECT_FALSE(changed.cached);
  EXPECT_EQ(changed.logits, start().logits);
}

TEST_F(PackedCacheTest, TheLeastRecentlyUsedGoesFirst) {
  using namespace std::chrono_literals;
  const auto now = fs::file_time_type::clock::now();
  const auto put = [&](const char* name, size_t n_bytes, std::chrono::seconds age) {
    std::ofstream(cache() / name) << std::string(n_bytes, 'x');
    fs::last_write_time(cache() / name, now - age);
  };
  put("old.packed", 6000, 3h);
  put("recent.packed", 6000, 2h);
  put("not ours", 6000, 4h);
  put(".new-1-0-x.packed", 6000, 2h);
  put(".new-2-0-x.packed", 6000, 1s);
  (void)start_cached();
  EXPECT_TRUE(files().contains("old.packed"));
  EXPECT_FALSE(files().contains(".new-1-0-x.packed")) << "left by a killed process";
  uint64_t own = 0;
  for (const auto& name : files()) {
    if (name.size() < 17 || name[16] != '-') continue;
    own += fs::file_size(cache() / name);
    fs::remove(cache() / name);
  }
  ASSERT_GT(own, 0U);
  (void)start_cached(true, true, own + 7000);
  EXPECT_FALSE(files().contains("old.packed"));
  EXPECT_TRUE(files().contains("recent.packed"));
  EXPECT_TRUE(files().contains("not ours"));
  EXPECT_TRUE(files().contains(".new-2-0-x.packed")) << "being written";
  EXPECT_TRUE(start_cached(true, true, 1).cached) << "a model's own files stay";
}

}  // namespace
}  // namespace baton::model
