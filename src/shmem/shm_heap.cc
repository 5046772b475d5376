#include "shmem/shm_heap.h"

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "shmem/shm/copy.h"
#include "shmem/shm/heap_thread.h"
#include "shmem/shm/members.h"
#include "shmem/shm/warmer.h"
#include "shmem/shm/windows.h"

namespace baton::shmem {
namespace {

/// How long a later join waits for one who is alive but doesn't answer, or for a dying holder of
/// its place.
constexpr std::chrono::milliseconds kLaterWait{2000};
constexpr std::chrono::milliseconds kListenRetry{20};

uint64_t time_of_day_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

/// Listens at the member's own name: for a while it may still belong to a predecessor that is
/// dying.
Result<Fd> take_place(const Hello& self, std::chrono::milliseconds patience) {
  const std::string name = socket_name(self.uid, self.first_pe);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    auto fd = listen_at(name);
    if (fd || fd.error().code != ErrorCode::kExhausted) return fd;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kListenRetry);
  }
  const Fd holder = dial(name);
  const auto process = holder.valid() ? peer_process(holder) : fail(ErrorCode::kIo, "unknown");
  return fail(ErrorCode::kInvalidArgument, "{}: joining world {}: PE {} is taken by process {}",
              describe(self), self.uid, self.first_pe,
              process ? std::to_string((*process)->pid) : process.error().message);
}

class JoinedHeap final : public ShmHeap {
 public:
  static Result<std::unique_ptr<Heap>> join(ShmHeapOptions options);

  int n_pes() const override { return self_->hello.npes; }
  Pe first_pe() const override { return {self_->hello.first_pe}; }
  uint64_t incarnation() const override { return self_->hello.incarnation; }
  std::span<std::byte> local(Pe pe) override {
    return self_->segment->memory(pe.value - self_->hello.first_pe);
  }
  std::optional<Peer> peer(Pe pe) const override {
    const auto member = members_.find(pe);
    if (!member) return std::nullopt;
    return Peer{.first_pe = {member->hello.first_pe},
                .n_pes = member->hello.shape.n_pes,
                .incarnation = member->hello.incarnation,
                .pid = member->pid,
                .member = member->hello.member};
  }

  Result<Window> open_window() override { return windows_.open(); }
  bool signalled(const Window& window) const override { return windows_.signalled(window); }
  uint64_t progress(const Window& window) const override { return windows_.progress(window); }
  void close_window(const Window& window) override { windows_.close(window); }
  bool quiet(const Window& window) const override { return windows_.quiet(window); }
  void free_window(const Window& window) override { windows_.free(window); }
  void set_listener(std::function<void()> listener) override {
    thread_->set_listener(std::move(listener));
  }

  Status put(const Target& target, std::span<const Piece> pieces) override;
  Status signal(const Target& target) override;

 private:
  JoinedHeap(ShmHeapOptions options, std::shared_ptr<Member> self)
      : options_(std::move(options)), members_(options_.world.npes), windows_(self->segment) {
    self->ticket = kOwnTicket;
    self_ = std::move(self);
    members_.add(self_);
  }

  [[nodiscard]] Result<std::shared_ptr<const Member>> find_target(const Target& target) const;

  const ShmHeapOptions options_;
  MemberTable members_;
  WindowTable windows_;
  std::shared_ptr<const Member> self_;
  std::unique_ptr<Warmer> warmer_;      ///< null: not wanted
  std::unique_ptr<HeapThread> thread_;  ///< last: it uses all of the above
};

Result<std::unique_ptr<Heap>> JoinedHeap::join(ShmHeapOptions options) {
  if (auto place = check_place(options.world, options.n_pes); !place) {
    return tl::unexpected(place.error());
  }
  auto self = std::make_shared<Member>();
  self->hello = {.uid = options.world.uid,
                 .npes = options.world.npes,
                 .first_pe = options.world.pe_start,
                 .incarnation = options.incarnation != 0 ? options.incarnation : time_of_day_ns(),
                 .shape = {.n_pes = options.n_pes,
                           .bytes_per_pe = options.bytes_per_pe,
                           .n_windows = options.n_windows},
                 .member = options.member};
  self->pid = getpid();
  if (auto status = check_hello(self->hello); !status) return tl::unexpected(status.error());
  auto segment = Segment::create(self->hello.shape);
  if (!segment) return tl::unexpected(segment.error());
  self->segment = std::move(*segment);
  auto doorbell = make_doorbell();
  auto wake = make_doorbell();
  if (!doorbell || !wake) return tl::unexpected((doorbell ? wake : doorbell).error());
  self->doorbell = std::make_shared<const Fd>(std::move(*doorbell));

  const bool first = options.world.join == Join::kFirst;
  const auto wait = first ? options.join_timeout : std::min(options.join_timeout, kLaterWait);
  auto listening = take_place(self->hello, std::min(options.join_timeout, kLaterWait));
  if (!listening) return tl::unexpected(listening.error());

  auto heap = std::unique_ptr<JoinedHeap>(new JoinedHeap(std::move(options), std::move(self)));
  heap->thread_ = std::make_unique<HeapThread>(HeapThread::Parts{.world = heap->options_.world,
                                                                 .self = heap->self_->hello,
                                                                 .segment = heap->self_->segment,
                                                                 .doorbell = heap->self_->doorbell,
                                                                 .members = heap->members_,
                                                                 .windows = heap->windows_},
                                               std::move(*listening), std::move(*wake));
  if (auto joined = heap->thread_->wait_joined(wait); !joined) {
    return tl::unexpected(joined.error());
  }
  if (heap->options_.warm) {
    heap->warmer_ = std::make_unique<Warmer>();
    heap->warmer_->add(heap->self_->segment);
  }
  return heap;
}

Result<std::shared_ptr<const Member>> JoinedHeap::find_target(const Target& target) const {
  auto member = members_.find(target.pe);
  if (!member || member->hello.incarnation != target.incarnation) {
    return fail(ErrorCode::kUnavailable, "incarnation {} of PE {} is gone{}", target.incarnation,
                target.pe.value,
                member ? fmt::format("; {} is there now", member->hello.incarnation) : "");
  }
  if (target.window.slot < 0 || target.window.slot >= member->hello.shape.n_windows) {
    return fail(ErrorCode::kInvalidArgument, "window {} of PE {}: expected 0 to {}",
                target.window.slot, target.pe.value, member->hello.shape.n_windows - 1);
  }
  return member;
}

Status refused(const Target& target, WindowEntry::Refused why) {
  return fail(ErrorCode::kUnavailable, "window {} (tag {}) of PE {} {}", target.window.slot,
              target.window.tag, target.pe.value,
              why == WindowEntry::Refused::kBusy ? "has another writer" : "is closed");
}

Status JoinedHeap::put(const Target& target, std::span<const Piece> pieces) {
  const auto member = find_target(target);
  if (!member) return tl::unexpected(member.error());
  const auto memory = (*member)->segment->memory(target.pe.value - (*member)->hello.first_pe);
  for (const Piece& piece : pieces) {
    if (piece.offset > memory.size() || piece.bytes.size() > memory.size() - piece.offset) {
      return fail(ErrorCode::kInvalidArgument, "put of {} bytes at {} of PE {}, which has {} bytes",
                  piece.bytes.size(), piece.offset, target.pe.value, memory.size());
    }
  }
  WindowSlot& slot = (*member)->segment->slot(target.window.slot);
  const WindowEntry entry(slot, target.window.tag, (*member)->ticket);
  if (entry.refused() != WindowEntry::Refused::kNo) return refused(target, entry.refused());
  if (warmer_) warmer_->add((*member)->segment);
  for (const Piece& piece : pieces) {
    if (options_.copy) {
      options_.copy(memory.data() + piece.offset, piece.bytes);
    } else {
      copy_out(memory.data() + piece.offset, piece.bytes);
    }
  }
  slot.progress.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Status JoinedHeap::signal(const Target& target) {
  const auto member = find_target(target);
  if (!member) return tl::unexpected(member.error());
  WindowSlot& slot = (*member)->segment->slot(target.window.slot);
  {
    const WindowEntry entry(slot, target.window.tag, (*member)->ticket);
    if (entry.refused() != WindowEntry::Refused::kNo) return refused(target, entry.refused());
    slot.signal_tag.store(target.window.tag, std::memory_order_release);
  }
  ring(*(*member)->doorbell);
  return {};
}

}  // namespace

Result<std::unique_ptr<Heap>> ShmHeap::create(ShmHeapOptions options) {
  return JoinedHeap::join(std::move(options));
}

}  // namespace baton::shmem
