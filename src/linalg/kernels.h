// Which kernels are in use, and what every kernel call gets: pool, scratch memory, kernel set.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace baton::linalg {

/// kReference: plain float32, the yardstick. kPortable: C++ that any CPU runs. kAvx2: AVX2 with FMA
/// and F16C. kAvx512: AVX-512 with VNNI. kAmx: kAvx512, and oneDNN may use the matrix units. oneDNN
/// is capped accordingly.
enum class KernelSet { kReference, kPortable, kAvx2, kAvx512, kAmx };

/// The two arithmetics of architecture.md's "Same bits". Which one computes a position depends only
/// on the position and its prompt, never on what else is in the batch.
enum class KernelClass { kPrefill, kDecode };

/// What quantised weights are multiplied with (activations.h): integers of 15 bits with a scale for
/// each row, or of 8 bits with a scale for each 32. A choice of the prefill class; the decode class
/// has kInt16.
enum class ActivationType { kInt16, kInt8 };

[[nodiscard]] std::string_view name(KernelSet kernels);
/// "int16" or "int8".
[[nodiscard]] std::string_view name(ActivationType activations);
/// Whether the set has kernels for 8-bit activations: kPortable and kAvx512. kAmx has matrix units
/// for the prefill class, kReference multiplies floats.
[[nodiscard]] bool has_int8_activations(KernelSet kernels);
/// The set that `wanted` (BATON_KERNELS; empty = the best there is) names, if this CPU can run it.
[[nodiscard]] Result<KernelSet> choose_kernels(std::string_view wanted, const CpuFeatures& cpu);

/// Scratch memory that grows to the largest need and stays: no allocation in a steady step.
/// Pointers are 64-byte aligned and live until reset(). Owner: one thread.
class Workspace {
 public:
  /// `n` uninitialised values.
  template <typename T>
  T* take(size_t n) {
    return static_cast<T*>(take_bytes(n * sizeof(T)));
  }
  /// Remembers the present fill; rewind(mark) gives back everything taken since.
  struct Mark {
    size_t chunk;
    size_t used;
  };
  [[nodiscard]] Mark mark() const { return {chunk_, used_}; }
  void rewind(Mark mark) {
    chunk_ = mark.chunk;
    used_ = mark.used;
  }

 private:
  void* take_bytes(size_t n_bytes);
  struct Free {
    void operator()(std::byte* p) const;
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> data;
    size_t size = 0;
  };
  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;
  size_t used_ = 0;
};

/// Passed to every kernel. The engine thread owns all of it.
struct Context {
  KernelSet kernels;
  ThreadPool& pool;
  Workspace& workspace;
};

}  // namespace baton::linalg
