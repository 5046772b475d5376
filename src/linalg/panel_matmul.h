// oneDNN behind one narrow class: the product of a panel of a fixed number of rows with one tile of
// packed weights, always on the calling thread alone. Supports oneDNN 2.x and 3.x. Internal to
// src/linalg; the only file that includes oneDNN is panel_matmul.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "linalg/kernels.h"

namespace baton::linalg {

/// y [n_rows, n_out] = x [n_rows, n_in] · Wᵀ, all dense; x and W in bf16 or float32, y in float32.
struct PanelShape {
  int64_t n_rows = 0;
  int64_t n_in = 0;
  int64_t n_out = 0;
  bool bf16 = false;
};

/// A primitive of one shape, made once. Immutable: several threads may run it at the same time.
class PanelMatmul {
 public:
  /// The first call of a process caps oneDNN's instruction sets at `kernels` for the whole process.
  /// kUnsupported if oneDNN can't do the shape on this CPU.
  [[nodiscard]] static Result<std::unique_ptr<PanelMatmul>> create(KernelSet kernels,
                                                                   const PanelShape& shape);
  ~PanelMatmul();

  /// Bytes of a packed tile, and of the scratch memory of a thread that packs or runs.
  [[nodiscard]] size_t packed_bytes() const;
  [[nodiscard]] size_t scratch_bytes() const;
  /// oneDNN's name for what it chose, e.g. "brg:avx512_core".
  [[nodiscard]] std::string implementation() const;
  /// How oneDNN lays out a packed tile: equal texts, equal bytes for equal rows.
  [[nodiscard]] std::string layout() const;

  /// rows [n_out][n_in] float32 → packed (in the shape's type).
  void pack(const float* rows, std::byte* packed, std::byte* scratch) const;

  /// What a thread needs to run the primitive. Owner: one thread.
  class Runner {
   public:
    /// `scratch` [scratch_bytes()] outlives the runner.
    Runner(const PanelMatmul& matmul, std::byte* scratch);
    ~Runner();
    void run(const void* x, const std::byte* packed, float* y);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Impl;
  explicit PanelMatmul(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::linalg
