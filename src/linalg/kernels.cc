#include "linalg/kernels.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/check.h"

namespace baton::linalg {
namespace {

constexpr std::array kAllSets = {KernelSet::kReference, KernelSet::kPortable, KernelSet::kAvx2,
                                 KernelSet::kAvx512, KernelSet::kAmx};

// The features of which a set needs all, as far as the CPU lacks them: "" = it can run.
std::string missing(KernelSet kernels, const CpuFeatures& cpu) {
  std::string text;
  const auto need = [&](bool has, const char* feature) {
    if (!has) text += (text.empty() ? "" : ", ") + std::string(feature);
  };
  if (kernels == KernelSet::kAvx2) need(cpu.avx2, "avx2 (with fma, f16c)");
  if (kernels == KernelSet::kAvx512 || kernels == KernelSet::kAmx) {
    need(cpu.avx512, "avx512 (f, bw, dq, vl, cd)");
    need(cpu.avx512_vnni, "avx512_vnni");
  }
  if (kernels == KernelSet::kAmx) {
    need(cpu.avx512_bf16, "avx512_bf16");
    need(cpu.amx_bf16, "amx_bf16 (granted by the system)");
  }
  return text;
}

}  // namespace

std::string_view name(KernelSet kernels) {
  switch (kernels) {
    case KernelSet::kReference:
      return "reference";
    case KernelSet::kPortable:
      return "portable";
    case KernelSet::kAvx2:
      return "avx2";
    case KernelSet::kAvx512:
      return "avx512";
    case KernelSet::kAmx:
      return "amx";
  }
  return "?";
}

std::string_view name(ActivationType activations) {
  return activations == ActivationType::kInt8 ? "int8" : "int16";
}

bool has_int8_activations(KernelSet kernels) {
  return kernels == KernelSet::kPortable || kernels == KernelSet::kAvx512;
}

Result<KernelSet> choose_kernels(std::string_view wanted, const CpuFeatures& cpu) {
  KernelSet best = KernelSet::kPortable;
  std::string possible;
  for (const KernelSet kernels : kAllSets) {
    if (!missing(kernels, cpu).empty()) continue;
    possible += (possible.empty() ? "" : ", ") + std::string(name(kernels));
    best = kernels;  // the list goes from slow to fast
  }
  if (wanted.empty()) return best;
  const auto found = std::find_if(kAllSets.begin(), kAllSets.end(),
                                  [&](KernelSet kernels) { return name(kernels) == wanted; });
  if (found == kAllSets.end()) {
    return fail(ErrorCode::kInvalidArgument,
                "BATON_KERNELS '{}': no such kernel set; this CPU can run {}", wanted, possible);
  }
  if (const std::string lacks = missing(*found, cpu); !lacks.empty()) {
    return fail(ErrorCode::kUnsupported, "BATON_KERNELS '{}': this CPU lacks {}; it can run {}",
                wanted, lacks, possible);
  }
  return *found;
}

void Workspace::Free::operator()(std::byte* p) const { std::free(p); }

void* Workspace::take_bytes(size_t n_bytes) {
  constexpr size_t kAlignment = 64;
  constexpr size_t kFirstChunk = size_t{1} << 20;
  const size_t size = (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
  // Taken memory must not move, so a full chunk is followed by another one, twice as large.
  while (chunk_ < chunks_.size() && used_ + size > chunks_[chunk_].size) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const size_t before = chunks_.empty() ? kFirstChunk / 2 : chunks_.back().size;
    Chunk chunk;
    chunk.size = std::max(size, 2 * before);
    chunk.data.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, chunk.size)));
    // Like any small allocation: there is no way on without it.
    BATON_CHECK(chunk.data != nullptr, "no memory for {} bytes of scratch", chunk.size);
    chunks_.push_back(std::move(chunk));
  }
  std::byte* p = chunks_[chunk_].data.get() + used_;
  used_ += size;
  return p;
}

}  // namespace baton::linalg
