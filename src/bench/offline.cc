#include "bench/offline.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "bench/statistics.h"
#include "engine/kv_memory.h"
#include "linalg/aligned_buffer.h"

namespace baton::bench {
namespace {

using linalg::KernelClass;
using model::SeqSlice;

constexpr double kProductMs = 8;
constexpr size_t kLeastReadBytes = size_t{256} << 20;

int blocks_of(int n_tokens) { return (n_tokens + kv::kBlockTokens - 1) / kv::kBlockTokens; }

/// Last-level cache as the C library knows it; 0 if it doesn't.
size_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
#else
  return 0;
#endif
}

Status check_lengths(const char* flag, const std::vector<int>& lengths, int more, int most) {
  for (const int n : lengths) {
    if (n < 1 || n > most - more) {
      return fail(ErrorCode::kInvalidArgument, "{} {}: must be between 1 and {} tokens{}", flag, n,
                  most - more,
                  more > 0 ? fmt::format(" (a context of {} less {} steps)", most, more) : "");
    }
  }
  return {};
}

/// The model with KV memory of its own, and what is run on it.
class Sweep {
 public:
  Sweep(linalg::Context& context, model::Transformer& model, const OfflineOptions& options,
        const Clock& clock)
      : context_(context),
        model_(model),
        options_(options),
        clock_(clock),
        kv_type_(context.kernels == linalg::KernelSet::kReference ? TensorType::kF32
                                                                  : TensorType::kBF16),
        weights_(weight_bytes(model.gemms())),
        costs_(model.spec(), weights_, info(kv_type_).block_bytes) {}

  Status prepare();
  [[nodiscard]] std::vector<Point> points() const;
  [[nodiscard]] MachineRates machine() const;
  /// Tokens/s of one round of `point`.
  double measure(const Point& point);
  /// A little of `point`: pages, primitives and tables come to be.
  void warm_up(const Point& point);
  /// Takes what is better now than before into `rates`.
  void measure_machine(MachineRates& rates, std::string& product_error);

 private:
  [[nodiscard]] Cost prompt_cost(int n_tokens) const;
  [[nodiscard]] int prefill_end(int n_tokens) const;
  [[nodiscard]] std::vector<BlockId> table(int stream) const;
  void run_prompt(int n_tokens);
  void run_steps(int n_streams, int context_tokens, int n_steps);
  /// KV of all contexts. What is in it makes no difference to the time, where it lies does.
  void fill_kv(int n_streams, int context_tokens);

  linalg::Context& context_;
  model::Transformer& model_;
  const OfflineOptions& options_;
  const Clock& clock_;
  TensorType kv_type_;
  WeightBytes weights_;
  CostModel costs_;
  std::optional<engine::KvMemory> kv_;
  int stream_blocks_ = 0;  ///< stream s has the blocks from s * stream_blocks_ on
  linalg::AlignedBuffer read_;
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
};

Status Sweep::prepare() {
  const int most = model_.context_length();
  if (auto s = check_lengths("--prompt", options_.prompts, 0, most); !s) return s;
  if (auto s = check_lengths("--context", options_.contexts, options_.n_steps, most); !s) return s;
  const auto largest = [](const std::vector<int>& values) {
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  };
  const int prompt = largest(options_.prompts);
  const int context = largest(options_.contexts) + options_.n_steps;
  const int n_streams = std::max(1, largest(options_.batches));
  stream_blocks_ = blocks_of(context);
  const int64_t n_blocks =
      std::max(int64_t{blocks_of(prompt)}, int64_t{n_streams} * stream_blocks_);
  const size_t kv_bytes =
      model_.kv_layout(1, kv_type_).total_bytes() * static_cast<size_t>(n_blocks);
  size_t read_bytes = options_.read_bytes;
  if (read_bytes == 0) read_bytes = std::max(kLeastReadBytes, 4 * last_level_cache_bytes());
  if (options_.available_bytes > 0 && kv_bytes + read_bytes > options_.available_bytes) {
    return fail(ErrorCode::kExhausted,
                "--batch {} with --context {} takes {} MiB of KV, and {} MiB are read to measure: "
                "only {} MiB of memory are available",
                n_streams, context - options_.n_steps, kv_bytes >> 20, read_bytes >> 20,
                options_.available_bytes >> 20);
  }
  if (n_blocks > std::numeric_limits<int32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument, "--batch {}: too many KV blocks", n_streams);
  }
  auto kv = engine::KvMemory::create(model_.kv_layout(static_cast<int>(n_blocks), kv_type_));
  if (!kv) return tl::unexpected(kv.error());
  kv_.emplace(std::move(*kv));
  model_.bind_kv(kv_->layout(), kv_->data());
  auto read = linalg::AlignedBuffer::create(read_bytes, "measuring the read rate");
  if (!read) return tl::unexpected(read.error());
  read_ = std::move(*read);
  std::memset(read_.data(), 1, read_.size());
  tokens_.resize(static_cast<size_t>(std::max(prompt, context)));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    tokens_[i] = static_cast<TokenId>((i * 7919 + 11) % static_cast<size_t>(model_.n_vocab()));
  }
  logits_.resize(static_cast<size_t>(n_streams) * static_cast<size_t>(model_.n_vocab()));
  if (!options_.batches.empty()) fill_kv(n_streams, largest(options_.contexts));
  return {};
}

/// All blocks from the stream's first one on: a prompt may be longer than a stream, and then runs
/// over the others'.
std::vector<BlockId> Sweep::table(int stream) const {
  const int first = stream * stream_blocks_;
  std::vector<BlockId> out(static_cast<size_t>(kv_->layout().n_blocks - first));
  for (size_t i = 0; i < out.size(); ++i) out[i] = {first + static_cast<int>(i)};
  return out;
}

void Sweep::fill_kv(int n_streams, int context_tokens) {
  run_prompt(context_tokens);
  for (int stream = 1; stream < n_streams; ++stream) {
    for (int i = 0; i < stream_blocks_; ++i) {
      kv_->copy_block({i}, {stream * stream_blocks_ + i});
    }
  }
}

/// Where the prefill class ends in a prompt: all but the tail, as in an engine.
int Sweep::prefill_end(int n_tokens) const {
  if (n_tokens < options_.prefill_min_tokens) return 0;
  return (n_tokens - 1) / kv::kBlockTokens * kv::kBlockTokens;
}

void Sweep::run_prompt(int n_tokens) {
  const std::vector<BlockId> blocks = table(0);
  const std::span<const TokenId> ids(tokens_);
  const int end = prefill_end(n_tokens);
  const auto slice = [&](int from, int to, KernelClass kernel_class, int n_logits) {
    return SeqSlice{blocks, from, ids.subspan(size_t(from), size_t(to - from)), kernel_class,
                    n_logits};
  };
  for (int begin = 0; begin < end; begin += options_.chunk) {
    const SeqSlice chunk =
        slice(begin, std::min(end, begin + options_.chunk), KernelClass::kPrefill, 0);
    model_.forward({&chunk, 1}, nullptr);
  }
  for (int begin = end; begin < n_tokens; begin += options_.chunk) {
    const int to = std::min(n_tokens, begin + options_.chunk);
    const SeqSlice last = slice(begin, to, KernelClass::kDecode, to == n_tokens ? 1 : 0);
    model_.forward({&last, 1}, logits_.data());
  }
}

Cost Sweep::prompt_cost(int n_tokens) const {
  Cost cost;
  const int end = prefill_end(n_tokens);
  for (int begin = 0; begin < end; begin += options_.chunk) {
    cost += costs_.prefill_chunk(begin, std::min(end, begin + options_.chunk));
  }
  for (int begin = end; begin < n_tokens; begin += options_.chunk) {
    cost += costs_.tail(begin, std::min(n_tokens, begin + options_.chunk));
  }
  return cost / n_tokens;
}

std::vector<Point> Sweep::points() const {
  std::vector<Point> out;
  for (const int n : options_.prompts) {
    out.push_back({Phase::kPrefill, 1, n, n, prompt_cost(n), {}});
  }
  for (const int context : options_.contexts) {
    for (const int n_streams : options_.batches) {
      Cost cost;
      for (int i = 0; i < options_.n_steps; ++i) cost += costs_.decode_step(n_streams, context + i);
      const int n_generated = n_streams * options_.n_steps;
      out.push_back(
          {Phase::kDecode, n_streams, context, n_generated, cost / double(n_generated), {}});
    }
  }
  return out;
}

void Sweep::run_steps(int n_streams, int context_tokens, int n_steps) {
  std::vector<std::vector<BlockId>> tables;
  for (int stream = 0; stream < n_streams; ++stream) tables.push_back(table(stream));
  std::vector<SeqSlice> slices;
  for (const auto& blocks : tables) {
    slices.push_back({blocks, 0, std::span(tokens_).first(1), KernelClass::kDecode, 1});
  }
  for (int step = 0; step < n_steps; ++step) {
    for (SeqSlice& slice : slices) slice.begin = context_tokens + step;
    model_.forward(slices, logits_.data());
  }
}

void Sweep::warm_up(const Point& point) {
  if (point.phase == Phase::kDecode) {
    run_steps(point.n_streams, point.n_tokens, 1);
  } else {
    run_prompt(std::min(point.n_tokens, options_.chunk + kv::kBlockTokens));
  }
}

double Sweep::measure(const Point& point) {
  const int64_t start_ns = clock_.now_ns();
  if (point.phase == Phase::kDecode) {
    run_steps(point.n_streams, point.n_tokens, options_.n_steps);
  } else {
    run_prompt(point.n_tokens);
  }
  return point.n_generated / (static_cast<double>(clock_.now_ns() - start_ns) * 1e-9);
}

MachineRates Sweep::machine() const {
  const model::ModelSpec& s = model_.spec();
  MachineRates out;
  out.memory_bytes = read_.size();
  out.weights_bytes =
      std::min(read_.size(), static_cast<size_t>(weights_.decode_layers + weights_.head));
  const int64_t n = s.n_layers();
  out.products = {{{"qkv", s.hidden, s.qkv_width(), n}, {}},
                  {{"attention_output", s.q_width(), s.hidden, n}, {}},
                  {{"gate_up", s.hidden, int64_t{2} * s.ffn, n}, {}},
                  {{"down", s.ffn, s.hidden, n}, {}}};
  return out;
}

void Sweep::measure_machine(MachineRates& rates, std::string& product_error) {
  const std::span<const std::byte> memory(read_.data(), read_.size());
  const auto better = [&](double& rate, size_t n_bytes) {
    rate = std::max(rate, linalg::measure_read_rate(context_, memory.first(n_bytes), clock_));
  };
  better(rates.memory_bytes_per_s, rates.memory_bytes);
  better(rates.weights_bytes_per_s, rates.weights_bytes);
  for (MachineRates::Product& product : rates.products) {
    auto rate = linalg::measure_product_rate(context_, product.shape, clock_, kProductMs);
    if (!rate) {
      product_error = rate.error().message;
    } else if (rate->flops_per_s > product.rate.flops_per_s) {
      product.rate = std::move(*rate);
    }
  }
}

}  // namespace

double Point::median() const {
  std::vector<double> sorted = tokens_per_s;
  std::sort(sorted.begin(), sorted.end());
  return quantile(sorted, 0.5);
}

double MachineRates::product_flops_per_s() const {
  double flops = 0;
  double seconds = 0;
  for (const Product& product : products) {
    if (product.rate.flops_per_s <= 0) return 0;
    const double n = 2.0 * static_cast<double>(product.shape.n_in) *
                     static_cast<double>(product.shape.n_out) *
                     static_cast<double>(product.shape.count);
    flops += n;
    seconds += n / product.rate.flops_per_s;
  }
  return seconds > 0 ? flops / seconds : 0;
}

Result<OfflineResult> run_offline(linalg::Context& context, model::Transformer& model,
                                  const OfflineOptions& options, const Clock& clock,
                                  const OfflineHooks& hooks) {
  Sweep sweep(context, model, options, clock);
  if (auto status = sweep.prepare(); !status) return tl::unexpected(status.error());
  OfflineResult out;
  out.machine = sweep.machine();
  out.points = sweep.points();
  const int n_points = static_cast<int>(out.points.size());
  const int total = options.n_rounds * (n_points + 1);
  int done = 0;
  const auto stopped = [&] { return hooks.stopped && hooks.stopped(); };
  const auto advance = [&] {
    if (hooks.on_progress) hooks.on_progress(++done, total);
  };
  for (int round = 0; round < options.n_rounds && !stopped(); ++round) {
    sweep.measure_machine(out.machine, out.product_error);
    advance();
    for (Point& point : out.points) {
      if (stopped()) return out;
      if (round == 0) sweep.warm_up(point);
      point.tokens_per_s.push_back(sweep.measure(point));
      advance();
    }
    ++out.n_rounds;
  }
  return out;
}

}  // namespace baton::bench
