#include "supervisor/partition.h"

#include <gtest/gtest.h>

#include <set>

namespace baton::supervisor {
namespace {

using Cores = std::vector<std::vector<int>>;

TEST(Partition, PesStartAtThePrefixSumsOfTheDeviceCounts) {
  EXPECT_EQ(exclusive_prefix_sums(std::vector{3, 1, 2}), (std::vector{0, 3, 4, 6}));
  EXPECT_EQ(exclusive_prefix_sums({}), std::vector{0});
  const auto out = partition({{3, 1, 2}, {{0}, {1}, {2}}, false});
  ASSERT_TRUE(out.has_value());
  EXPECT_EQ(out->npes, 6);
  ASSERT_EQ(out->shares.size(), 3U);
  EXPECT_EQ(out->shares[0].pe_start, 0);
  EXPECT_EQ(out->shares[1].pe_start, 3);
  EXPECT_EQ(out->shares[2].pe_start, 4);
}

TEST(Partition, WholeCoresAsLongAsTheyLast) {
  const Cores cores{{0, 4}, {1, 5}, {2, 6}};
  const auto two = partition({{1, 1}, cores, false});
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->shares[0].cpus, (std::vector{0, 4, 1, 5}));
  EXPECT_EQ(two->shares[1].cpus, (std::vector{2, 6}));
  const auto four = partition({{1, 1, 1, 1}, cores, false});
  ASSERT_TRUE(four.has_value());
  EXPECT_EQ(four->shares[0].cpus, (std::vector{0, 4}));
  EXPECT_EQ(four->shares[3].cpus, std::vector{6});
}

TEST(Partition, MoreEnginesThanCpusOnlyWhenTheyMayShare) {
  const PartitionRequest request{{1, 1, 1}, {{0}, {1}}, false};
  const auto refused = partition(request);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  for (const char* word : {"--engines", "3 engines", "are 2", "--oversubscribe"}) {
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
  const auto shared = partition({request.n_devices, request.cores, true});
  ASSERT_TRUE(shared.has_value());
  EXPECT_EQ(shared->shares[0].cpus, std::vector{0});
  EXPECT_EQ(shared->shares[1].cpus, std::vector{1});
  EXPECT_EQ(shared->shares[2].cpus, std::vector{0});
}

TEST(Partition, NoTwoEnginesOverlapAndNothingIsLeftOver) {
  for (int n_cores = 1; n_cores <= 9; ++n_cores) {
    for (int n_engines = 1; n_engines <= 2 * n_cores; ++n_engines) {
      PartitionRequest request;
      for (int i = 0; i < n_cores; ++i) request.cores.push_back({i, i + n_cores});
      for (int i = 0; i < n_engines; ++i) request.n_devices.push_back(1 + i % 3);
      const auto out = partition(request);
      ASSERT_TRUE(out.has_value());
      std::set<int> cpus;
      int next_pe = 0;
      for (size_t i = 0; i < out->shares.size(); ++i) {
        const auto& share = out->shares[i];
        EXPECT_FALSE(share.cpus.empty());
        for (const int cpu : share.cpus) EXPECT_TRUE(cpus.insert(cpu).second);
        EXPECT_EQ(share.pe_start, next_pe);
        next_pe += request.n_devices[i];
      }
      EXPECT_EQ(cpus.size(), static_cast<size_t>(2 * n_cores));
      EXPECT_EQ(out->npes, next_pe);
    }
  }
}

}  // namespace
}  // namespace baton::supervisor
