#include "testing/fake_world.h"

#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"

namespace baton::testing {

using shmem::Peer;
using shmem::Piece;
using shmem::Target;
using shmem::Window;

namespace {

struct Slot {
  enum class Use { kFree, kOpen, kClosed };
  Use use = Use::kFree;
  uint64_t tag = 0;
  int n_under_way = 0;
  uint64_t n_puts = 0;
  bool signalled = false;
};

struct Member {
  Peer peer;
  size_t bytes_per_pe = 0;
  std::vector<std::byte> memory;  ///< [n_pes][bytes_per_pe]
  std::vector<Slot> slots;
  std::function<void()> listener;
  bool alive = true;

  [[nodiscard]] bool owns(Pe pe) const {
    return pe.value >= peer.first_pe.value && pe.value < peer.first_pe.value + peer.n_pes;
  }
  [[nodiscard]] std::byte* memory_of(Pe pe) {
    return memory.data() + static_cast<size_t>(pe.value - peer.first_pe.value) * bytes_per_pe;
  }
  [[nodiscard]] Slot* find(const Window& window) {
    if (window.slot < 0 || static_cast<size_t>(window.slot) >= slots.size()) return nullptr;
    Slot& slot = slots[static_cast<size_t>(window.slot)];
    return slot.tag == window.tag && slot.use != Slot::Use::kFree ? &slot : nullptr;
  }
};

/// What a held put still has to write.
struct HeldPut {
  std::shared_ptr<Member> writer;
  std::shared_ptr<Member> owner;
  Window window;
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> rest;
};

}  // namespace

struct FakeWorld::State {
  explicit State(int n) : n_pes(n) {}

  const int n_pes;
  mutable std::mutex mutex;
  uint64_t last_incarnation = 0;
  uint64_t last_tag = 0;
  std::vector<std::shared_ptr<Member>> members;  ///< those alive
  std::set<int> hold_next;                       ///< PEs whose next put is held
  std::vector<HeldPut> held;

  [[nodiscard]] std::shared_ptr<Member> find(Pe pe) const {
    for (const auto& member : members) {
      if (member->owns(pe)) return member;
    }
    return nullptr;
  }

  void leave(const std::shared_ptr<Member>& member) {
    {
      const std::lock_guard lock(mutex);
      if (!member->alive) return;
      member->alive = false;
      std::erase(members, member);
      std::erase_if(held, [&](const HeldPut& put) {
        if (put.writer != member) return false;
        if (Slot* slot = put.owner->find(put.window)) --slot->n_under_way;
        return true;
      });
    }
    call_listeners(nullptr);
  }

  /// All of them, or one.
  void call_listeners(const Member* only) const {
    std::vector<std::function<void()>> to_call;
    {
      const std::lock_guard lock(mutex);
      for (const auto& member : members) {
        if ((!only || member.get() == only) && member->listener) {
          to_call.push_back(member->listener);
        }
      }
    }
    for (const auto& listener : to_call) listener();
  }
};

namespace {

class FakeHeap final : public shmem::Heap {
 public:
  FakeHeap(std::shared_ptr<FakeWorld::State> world, std::shared_ptr<Member> self)
      : world_(std::move(world)), self_(std::move(self)) {}
  ~FakeHeap() override { world_->leave(self_); }

  int n_pes() const override { return world_->n_pes; }
  Pe first_pe() const override { return self_->peer.first_pe; }
  uint64_t incarnation() const override { return self_->peer.incarnation; }
  std::span<std::byte> local(Pe pe) override {
    BATON_CHECK(self_->owns(pe), "PE {}", pe.value);
    return {self_->memory_of(pe), self_->bytes_per_pe};
  }
  std::optional<Peer> peer(Pe pe) const override {
    const std::lock_guard lock(world_->mutex);
    const auto member = world_->find(pe);
    return member ? std::optional(member->peer) : std::nullopt;
  }

  Result<Window> open_window() override {
    const std::lock_guard lock(world_->mutex);
    for (size_t i = 0; i < self_->slots.size(); ++i) {
      if (self_->slots[i].use != Slot::Use::kFree) continue;
      self_->slots[i] = Slot{.use = Slot::Use::kOpen, .tag = ++world_->last_tag};
      return Window{static_cast<int32_t>(i), world_->last_tag};
    }
    return fail(ErrorCode::kExhausted, "all {} windows are in use", self_->slots.size());
  }
  bool signalled(const Window& window) const override {
    const std::lock_guard lock(world_->mutex);
    const Slot* slot = self_->find(window);
    return slot && slot->signalled;
  }
  uint64_t progress(const Window& window) const override {
    const std::lock_guard lock(world_->mutex);
    const Slot* slot = self_->find(window);
    return slot ? slot->n_puts : 0;
  }
  void close_window(const Window& window) override {
    const std::lock_guard lock(world_->mutex);
    if (Slot* slot = self_->find(window)) slot->use = Slot::Use::kClosed;
  }
  bool quiet(const Window& window) const override {
    const std::lock_guard lock(world_->mutex);
    const Slot* slot = self_->find(window);
    return !slot || (slot->use == Slot::Use::kClosed && slot->n_under_way == 0);
  }
  void free_window(const Window& window) override {
    const std::lock_guard lock(world_->mutex);
    Slot* slot = self_->find(window);
    if (!slot) return;
    BATON_CHECK(slot->use == Slot::Use::kClosed && slot->n_under_way == 0, "window {} isn't quiet",
                window.slot);
    slot->use = Slot::Use::kFree;
  }
  void set_listener(std::function<void()> listener) override {
    const std::lock_guard lock(world_->mutex);
    self_->listener = std::move(listener);
  }

  Status put(const Target& target, std::span<const Piece> pieces) override {
    const std::lock_guard lock(world_->mutex);
    const auto owner = find_open(target);
    if (!owner) return tl::unexpected(owner.error());
    for (const Piece& piece : pieces) {
      if (piece.offset > (*owner)->bytes_per_pe ||
          piece.bytes.size() > (*owner)->bytes_per_pe - piece.offset) {
        return fail(ErrorCode::kInvalidArgument, "put of {} bytes at {} of PE {}, which has {}",
                    piece.bytes.size(), piece.offset, target.pe.value, (*owner)->bytes_per_pe);
      }
    }
    write(target, *owner, pieces);
    return {};
  }

  Status signal(const Target& target) override {
    const Member* owner = nullptr;
    {
      const std::lock_guard lock(world_->mutex);
      const auto found = find_open(target);
      if (!found) return tl::unexpected(found.error());
      owner = found->get();
      (*found)->find(target.window)->signalled = true;
    }
    world_->call_listeners(owner);
    return {};
  }

 private:
  [[nodiscard]] Result<std::shared_ptr<Member>> find_open(const Target& target) const {
    if (!self_->alive) return fail(ErrorCode::kUnavailable, "this member has left the world");
    auto owner = world_->find(target.pe);
    if (!owner || owner->peer.incarnation != target.incarnation) {
      return fail(ErrorCode::kUnavailable, "incarnation {} of PE {} is gone", target.incarnation,
                  target.pe.value);
    }
    const Slot* slot = owner->find(target.window);
    if (!slot || slot->use != Slot::Use::kOpen || slot->n_under_way > 0) {
      return fail(ErrorCode::kUnavailable, "window {} of PE {} is closed", target.window.slot,
                  target.pe.value);
    }
    return owner;
  }

  void write(const Target& target, const std::shared_ptr<Member>& owner,
             std::span<const Piece> pieces) {
    Slot& slot = *owner->find(target.window);
    const bool hold = world_->hold_next.erase(target.pe.value) > 0;
    HeldPut put{self_, owner, target.window, {}};
    for (const Piece& piece : pieces) {
      std::byte* to = owner->memory_of(target.pe) + piece.offset;
      const size_t n_now = hold ? piece.bytes.size() / 2 : piece.bytes.size();
      if (n_now > 0) std::memcpy(to, piece.bytes.data(), n_now);
      const auto rest = piece.bytes.subspan(n_now);
      put.rest.emplace_back(to + n_now, std::vector<std::byte>(rest.begin(), rest.end()));
    }
    if (hold) {
      ++slot.n_under_way;
      world_->held.push_back(std::move(put));
    } else {
      ++slot.n_puts;
    }
  }

  std::shared_ptr<FakeWorld::State> world_;
  std::shared_ptr<Member> self_;
};

}  // namespace

FakeWorld::FakeWorld(int n_pes) : state_(std::make_shared<State>(n_pes)) {}

std::unique_ptr<shmem::Heap> FakeWorld::join(const FakeMember& options) {
  auto member = std::make_shared<Member>();
  {
    const std::lock_guard lock(state_->mutex);
    BATON_CHECK(options.n_pes >= 1 && options.first_pe.value >= 0 &&
                    options.first_pe.value + options.n_pes <= state_->n_pes,
                "{} PEs from {}", options.n_pes, options.first_pe.value);
    for (int i = 0; i < options.n_pes; ++i) {
      BATON_CHECK(!state_->find(Pe{options.first_pe.value + i}), "PE {} is taken",
                  options.first_pe.value + i);
    }
    member->peer = {.first_pe = options.first_pe,
                    .n_pes = options.n_pes,
                    .incarnation = ++state_->last_incarnation,
                    .pid = 1,
                    .member = options.member};
    member->bytes_per_pe = options.bytes_per_pe;
    member->memory.resize(options.bytes_per_pe * static_cast<size_t>(options.n_pes));
    member->slots.resize(static_cast<size_t>(options.n_windows));
    state_->members.push_back(member);
  }
  state_->call_listeners(nullptr);
  return std::make_unique<FakeHeap>(state_, std::move(member));
}

void FakeWorld::kill(Pe pe) {
  std::shared_ptr<Member> member;
  {
    const std::lock_guard lock(state_->mutex);
    member = state_->find(pe);
  }
  BATON_CHECK(member, "nobody lives at PE {}", pe.value);
  state_->leave(member);
}

void FakeWorld::hold_next_put(Pe pe) {
  const std::lock_guard lock(state_->mutex);
  state_->hold_next.insert(pe.value);
}

int FakeWorld::finish_puts() {
  const std::lock_guard lock(state_->mutex);
  for (const HeldPut& put : state_->held) {
    for (const auto& [to, bytes] : put.rest) {
      if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    }
    if (Slot* slot = put.owner->find(put.window)) {
      --slot->n_under_way;
      ++slot->n_puts;
    }
  }
  return static_cast<int>(std::exchange(state_->held, {}).size());
}

}  // namespace baton::testing
