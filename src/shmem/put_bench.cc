// What a put costs beside memcpy of the same pieces to the same kind of memory, in the same run:
// counters GB/s of each and their ratio. Blocks of one layer of one chunk go to places all over the
// receiver's pool, as in a handoff.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <future>
#include <vector>

#include "base/log.h"
#include "shmem/shm_heap.h"

namespace baton::shmem {
namespace {

struct Bench {
  explicit Bench(size_t n_bytes) {
    (void)init_logging("off", "text");
    ShmHeapOptions options;
    options.world = {.uid = fmt::format("bench-{}", getpid()), .npes = 2, .pe_start = 1};
    options.member.name = "bench";
    options.bytes_per_pe = n_bytes;
    auto other = std::async(std::launch::async, [&] { return ShmHeap::create(options); });
    ShmHeapOptions mine = options;
    mine.world.pe_start = 0;
    mine.bytes_per_pe = 1;
    sender = std::move(*ShmHeap::create(mine));
    owner = std::move(*other.get());
    window = owner->open_window().value();
    memory.resize(n_bytes);
    // Every page is there, in both mappings.
    std::memset(memory.data(), 1, n_bytes);
    std::memset(owner->local({1}).data(), 1, n_bytes);
    const Piece all{0, memory};
    (void)sender->put(target(), {&all, 1});
  }
  [[nodiscard]] Target target() const { return {{1}, owner->incarnation(), window}; }

  std::unique_ptr<Heap> sender;
  std::unique_ptr<Heap> owner;
  Window window;
  std::vector<std::byte> memory;  ///< what memcpy writes to, in this process
};

/// 32 pieces of range(0) bytes a put, over range(1) MiB of the receiver.
void BM_Put(benchmark::State& state) {
  constexpr size_t kPieces = 32;
  const auto n_piece = static_cast<size_t>(state.range(0));
  const size_t n_bytes = static_cast<size_t>(state.range(1)) << 20;
  const size_t n_places = n_bytes / n_piece;
  Bench bench(n_bytes);
  const std::vector<std::byte> source(n_piece * kPieces, std::byte{7});
  std::vector<Piece> pieces(kPieces);
  double put_s = 0, copy_s = 0;
  size_t place = 0;
  const auto timed = [](double& sum, auto&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    sum += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (auto _ : state) {
    for (size_t i = 0; i < kPieces; ++i) {
      place = (place + 7919) % n_places;
      pieces[i] = {place * n_piece, std::span(source).subspan(i * n_piece, n_piece)};
    }
    timed(put_s, [&] {
      if (!bench.sender->put(bench.target(), pieces)) state.SkipWithError("put was refused");
    });
    timed(copy_s, [&] {
      for (const Piece& piece : pieces) {
        std::memcpy(bench.memory.data() + piece.offset, piece.bytes.data(), n_piece);
      }
    });
  }
  const double n_total =
      static_cast<double>(state.iterations()) * static_cast<double>(n_piece * kPieces);
  state.counters["put_GB/s"] = n_total / put_s / 1e9;
  state.counters["memcpy_GB/s"] = n_total / copy_s / 1e9;
  state.counters["ratio"] = copy_s / put_s;
}
BENCHMARK(BM_Put)
    ->ArgNames({"piece_bytes", "pool_MiB"})
    ->ArgsProduct({{1024, 12288, 16384, 65536}, {8, 256}})
    ->Unit(benchmark::kMicrosecond);

/// A put of nothing and its signal: what the window protocol, the look-up and the doorbell cost.
void BM_PutAndSignalOfNothing(benchmark::State& state) {
  Bench bench(1 << 20);
  for (auto _ : state) {
    if (!bench.sender->put(bench.target(), {}) || !bench.sender->signal(bench.target())) {
      state.SkipWithError("refused");
    }
  }
}
BENCHMARK(BM_PutAndSignalOfNothing);

}  // namespace
}  // namespace baton::shmem
