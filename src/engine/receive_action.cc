#include "engine/receive_action.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/handoff.h"

namespace baton::engine {
namespace {

constexpr int64_t kMaxLeaseNs = int64_t{3600} * 1'000'000'000;

}  // namespace

ReceiveAction::ReceiveAction(const EngineOptions& options, const EngineLimits& limits,
                             const Deps& deps)
    : options_(options), limits_(limits), deps_(deps) {
  if (deps.heap != nullptr) leases_.emplace(*deps.heap, *deps.cache);
}

Status ReceiveAction::check(const PrepareReceive& request) const {
  const auto bad = ErrorCode::kInvalidArgument;
  if (options_.role == Role::kPrefill) {
    return fail(ErrorCode::kUnsupported, "a prefill engine receives nothing");
  }
  if (!leases_) {
    return fail(ErrorCode::kUnsupported, "this engine has no place in a symmetric world");
  }
  if (request.prompt.empty()) return fail(bad, "the prompt is empty");
  if (auto status = check_range(0, request.end, request.prompt.size()); !status) return status;
  if (request.lease_ns < 0) return fail(bad, "lease of {} ns: is negative", request.lease_ns);
  const size_t n_prompt = request.prompt.size();
  if (n_prompt >= static_cast<size_t>(limits_.context_tokens)) {
    return fail(bad, "prompt of {} tokens: the context of {} leaves nothing to generate", n_prompt,
                limits_.context_tokens);
  }
  return check_tokens(request.prompt, limits_.n_vocab, "prompt token");
}

Result<PreparedReceive> ReceiveAction::prepare(const PrepareReceive& request) {
  auto room = deps_.scheduler->make_room(request, leases_->n_open());
  if (!room) {
    auto full = fail(ErrorCode::kExhausted, "no room for the KV of {} tokens now; try again later",
                     request.prompt.size());
    full.value().retryable = true;
    return full;
  }
  Lease lease;
  lease.prompt = request.prompt;
  lease.label = request.label;
  lease.end = request.end;
  lease.room = std::move(*room);
  lease.lease_ns =
      std::min(request.lease_ns > 0 ? request.lease_ns : options_.lease_ns, kMaxLeaseNs);
  const auto id = leases_->open(std::move(lease), deps_.clock->now_ns());
  if (!id) return tl::unexpected(id.error());

  const Lease& held = *leases_->find(*id);
  PreparedReceive out;
  out.lease = *id;
  out.n_matched = held.room.n_matched;
  out.lease_ns = held.lease_ns;
  out.address.pe = deps_.heap->first_pe();
  out.address.incarnation = deps_.heap->incarnation();
  out.address.layout_hash = limits_.layout_hash;
  const shmem::Window window = held.window.value_or(shmem::Window{});
  out.address.window_slot = window.slot;
  out.address.window_tag = window.tag;
  const auto at = [&](int n) { return held.room.table.begin() + n / kv::kBlockTokens; };
  out.address.blocks.assign(at(held.room.n_matched), at(held.end));
  return out;
}

void ReceiveAction::release(LeaseId id) {
  const Lease* lease = leases_ ? leases_->find(id) : nullptr;
  if (lease != nullptr && !lease->request) leases_->close(id);
}

Status ReceiveAction::start(Request& request) {
  const auto bad = ErrorCode::kInvalidArgument;
  const TokenRequest::LeasedPrefix& wanted = *request.spec.leased;
  Lease* lease = leases_ ? leases_->find(wanted.lease) : nullptr;
  if (lease == nullptr) {
    return fail(ErrorCode::kNotFound, "lease {} is not open (any more)", wanted.lease.value);
  }
  if (lease->request) return fail(bad, "lease {} is another request's", wanted.lease.value);
  if (lease->prompt != request.spec.prompt) {
    return fail(bad, "lease {} is for another prompt", wanted.lease.value);
  }
  if (wanted.begin != lease->end && wanted.begin != lease->room.n_matched) {
    return fail(bad, "begin {}: lease {} is for [{}, {})", wanted.begin, wanted.lease.value,
                lease->room.n_matched, lease->end);
  }
  lease->request = request.spec.id;
  // Nobody sends: what is there is there, the rest is computed here.
  if (wanted.begin == lease->room.n_matched) {
    deliver(wanted.lease, *receiver(*lease), wanted.begin);
  }
  return {};
}

Sequence* ReceiveAction::receiver(const Lease& lease) const {
  const Request* request = deps_.scheduler->find(*lease.request);
  if (request == nullptr) return nullptr;
  for (const auto& sequence : request->choices) {
    if (sequence->state == SequenceState::kReceiving) return sequence.get();
  }
  return nullptr;
}

void ReceiveAction::deliver(LeaseId id, Sequence& receiver, int begin) {
  const int end = leases_->find(id)->end;
  receiver.request->submitted_ns = deps_.clock->now_ns();  // until now it waited for its KV
  deps_.scheduler->deliver(receiver, leases_->take(id), begin, end);
}

void ReceiveAction::drop_orphans() {
  for (const LeaseId id : open_ids()) {
    const Lease& lease = *leases_->find(id);
    if (lease.request && receiver(lease) == nullptr) leases_->close(id);
  }
}

void ReceiveAction::close_all() {
  for (const LeaseId id : open_ids()) leases_->close(id);
}

void ReceiveAction::plan(Scheduler& scheduler, Batch&) {
  if (!leases_) return;
  drop_orphans();
  for (const LeaseId id : open_ids()) {
    Lease& lease = *leases_->find(id);
    if (lease.request && leases_->arrived(lease)) deliver(id, *receiver(lease), lease.end);
  }
  for (const LeaseId id : leases_->poll(deps_.clock->now_ns())) {
    const Lease& lease = *leases_->find(id);
    const auto why = fmt::format("its KV did not come: no sign of its sender for {} ms",
                                 lease.lease_ns / 1'000'000);
    spdlog::warn("lease of '{}' has expired", lease.label);
    if (lease.request) scheduler.lose(*receiver(lease), why);
    leases_->close(id);
  }
}

std::optional<int64_t> ReceiveAction::next_poll_ns() const {
  if (!leases_) return std::nullopt;
  return leases_->next_poll_ns(deps_.clock->now_ns());
}

std::vector<LeaseId> ReceiveAction::open_ids() const {
  std::vector<LeaseId> ids;
  if (!leases_) return ids;
  for (const auto& [id, lease] : leases_->all()) ids.push_back(id);
  return ids;
}

}  // namespace baton::engine
