// The offline benchmark: prefill and decode of a model in this process, no HTTP, no scheduler, no
// sampling, beside what the machine itself can do, measured in the same rounds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/cost.h"
#include "linalg/machine_rates.h"
#include "model/transformer.h"

namespace baton::bench {

struct OfflineOptions {
  std::vector<int> prompts{512, 2048};     ///< tokens of a prompt that is prefilled alone
  std::vector<int> batches{1, 8, 16, 32};  ///< streams that decode together
  std::vector<int> contexts{512};          ///< tokens that each of them has at the start
  int n_rounds = 5;
  int n_steps = 16;              ///< decode steps of a round, each one token further
  int chunk = 512;               ///< most tokens of a prefill pass; a multiple of 16
  int prefill_min_tokens = 128;  ///< shorter prompts run in the decode class, as in an engine
  /// Of the memory that read bandwidth is measured on, beside the weights' size. 0 = four times
  /// the last-level cache, at least 256 MiB.
  size_t read_bytes = 0;
  /// What may be allocated for KV and measuring; 0 = no limit known.
  size_t available_bytes = 0;
};

enum class Phase { kPrefill, kDecode };

/// One measurement of the sweep.
struct Point {
  Phase phase = Phase::kPrefill;
  int n_streams = 1;
  int n_tokens = 0;                  ///< of the prompt, or of context before the first step
  int n_generated = 0;               ///< tokens that a round computes, of all streams
  Cost cost;                         ///< of one token
  std::vector<double> tokens_per_s;  ///< one for each round that was measured

  [[nodiscard]] double median() const;
};

/// The best of all rounds: noise only makes a machine look slower.
struct MachineRates {
  double memory_bytes_per_s = 0;   ///< reading much more than any cache holds
  double weights_bytes_per_s = 0;  ///< reading as much as the decode weights, again and again
  size_t memory_bytes = 0;         ///< how much the first one read
  size_t weights_bytes = 0;        ///< and the second
  struct Product {
    linalg::ProductShape shape;
    linalg::ProductRate rate;
  };
  std::vector<Product> products;  ///< the layers' matrices
  /// FLOP/s of all layers' products one after the other at those rates; 0 if there are none.
  [[nodiscard]] double product_flops_per_s() const;
};

struct OfflineResult {
  MachineRates machine;
  std::vector<Point> points;
  int n_rounds = 0;           ///< complete ones; fewer than asked for after a stop
  std::string product_error;  ///< why there are no products' rates
};

struct OfflineHooks {
  std::function<bool()> stopped;                         ///< looked at between measurements
  std::function<void(int done, int total)> on_progress;  ///< measurements of all rounds
};

/// kInvalidArgument names the flag and its value (a length over the model's context, …),
/// kExhausted says how much memory would be needed. `model` belongs to `context`; its KV is bound
/// anew and unbound memory must not be used afterwards.
[[nodiscard]] Result<OfflineResult> run_offline(linalg::Context& context, model::Transformer& model,
                                                const OfflineOptions& options, const Clock& clock,
                                                const OfflineHooks& hooks);

}  // namespace baton::bench
