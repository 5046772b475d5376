#include "linalg/kernels.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace baton::linalg {
namespace {

CpuFeatures sapphire_rapids() { return {true, true, true, true, true}; }

TEST(ChooseKernels, EmptyMeansTheBestThereIs) {
  CpuFeatures cpu = sapphire_rapids();
  EXPECT_EQ(choose_kernels("", cpu), KernelSet::kAmx);
  cpu.amx_bf16 = false;
  EXPECT_EQ(choose_kernels("", cpu), KernelSet::kAvx512);
  cpu.avx512_bf16 = false;  // Ice Lake, Cascade Lake
  EXPECT_EQ(choose_kernels("", cpu), KernelSet::kAvx512);
  cpu.avx512_vnni = false;
  EXPECT_EQ(choose_kernels("", cpu), KernelSet::kAvx2);
  EXPECT_EQ(choose_kernels("", CpuFeatures{}), KernelSet::kPortable);
}

TEST(ChooseKernels, NamedSetsAreTakenWhenTheCpuCan) {
  for (const char* wanted : {"reference", "portable", "avx2", "avx512", "amx"}) {
    const auto chosen = choose_kernels(wanted, sapphire_rapids());
    ASSERT_TRUE(chosen) << wanted;
    EXPECT_EQ(name(*chosen), wanted);
  }
  EXPECT_TRUE(choose_kernels("reference", CpuFeatures{}));
  EXPECT_TRUE(choose_kernels("portable", CpuFeatures{}));
}

TEST(ChooseKernels, ErrorsNameWhatIsMissingAndWhatCanRun) {
  CpuFeatures cpu = sapphire_rapids();
  cpu.amx_bf16 = false;
  const auto amx = choose_kernels("amx", cpu);
  ASSERT_FALSE(amx);
  EXPECT_EQ(amx.error().message,
            "BATON_KERNELS 'amx': this CPU lacks amx_bf16 (granted by the system); it can run "
            "reference, portable, avx2, avx512");
  const auto avx512 = choose_kernels("avx512", CpuFeatures{});
  ASSERT_FALSE(avx512);
  EXPECT_EQ(avx512.error().message,
            "BATON_KERNELS 'avx512': this CPU lacks avx512 (f, bw, dq, vl, cd), avx512_vnni; "
            "it can run reference, portable");
  const auto unknown = choose_kernels("AVX512", cpu);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(unknown.error().message,
            "BATON_KERNELS 'AVX512': no such kernel set; this CPU can run reference, portable, "
            "avx2, avx512");
}

TEST(Workspace, PointersAreAlignedAndStayValidWhileItGrows) {
  Workspace workspace;
  auto* first = workspace.take<int>(3);
  first[0] = 1;
  first[2] = 3;
  for (size_t n = 1; n < (1U << 23); n *= 3) {
    auto* p = workspace.take<std::byte>(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0U);
    p[0] = p[n - 1] = std::byte{0xFF};
  }
  EXPECT_EQ(first[0], 1);
  EXPECT_EQ(first[2], 3);
}

TEST(Workspace, RewindGivesTheSameMemoryAgain) {
  Workspace workspace;
  (void)workspace.take<float>(100);
  const auto mark = workspace.mark();
  auto* a = workspace.take<float>(1000);
  auto* b = workspace.take<float>(1 << 20);  // more than the first chunk
  workspace.rewind(mark);
  EXPECT_EQ(workspace.take<float>(1000), a);
  EXPECT_EQ(workspace.take<float>(1 << 20), b);
  workspace.rewind({0, 0});
  EXPECT_NE(workspace.take<float>(1), nullptr);
}

}  // namespace
}  // namespace baton::linalg
