#include "engine/kv_sender.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/handoff.h"

namespace baton::engine {

using linalg::KernelClass;

KvSender::KvSender(const EngineOptions& options, const EngineLimits& limits, const Deps& deps)
    : options_(options), limits_(limits), deps_(deps) {}

Status KvSender::check(const RemoteSend& request) const {
  const auto bad = ErrorCode::kInvalidArgument;
  if (options_.role == Role::kDecode) {
    return fail(ErrorCode::kUnsupported, "a decode engine sends nothing");
  }
  if (deps_.heap == nullptr) {
    return fail(ErrorCode::kUnsupported, "this engine has no place in a symmetric world");
  }
  if (request.prompt.empty()) return fail(bad, "the prompt is empty");
  if (auto status = check_range(request.begin, request.end, request.prompt.size()); !status) {
    return status;
  }
  const size_t n_blocks = static_cast<size_t>((request.end - request.begin) / kv::kBlockTokens);
  if (request.to.blocks.size() != n_blocks) {
    return fail(bad, "address with {} blocks: [{}, {}) has {}", request.to.blocks.size(),
                request.begin, request.end, n_blocks);
  }
  if (request.to.layout_hash != limits_.layout_hash) {
    return fail(ErrorCode::kUnsupported,
                "layout {:016x} of the receiver: this engine's is {:016x}; they can't exchange KV",
                request.to.layout_hash, limits_.layout_hash);
  }
  if (request.end > limits_.context_tokens || blocks_for(request.end) > limits_.n_blocks) {
    return fail(bad, "end {}: is over the context of {} tokens", request.end,
                limits_.context_tokens);
  }
  return check_tokens(request.prompt, limits_.n_vocab, "prompt token");
}

Result<std::unique_ptr<Send>> KvSender::open(const RemoteSend& request) const {
  auto send = std::make_unique<Send>();
  send->begin = request.begin;
  send->end = request.end;
  send->target = {.pe = request.to.pe,
                  .incarnation = request.to.incarnation,
                  .window = {request.to.window_slot, request.to.window_tag}};
  send->blocks = request.to.blocks;
  send->layout = deps_.memory->layout();
  if (request.begin == request.end) return send;
  const auto peer = deps_.heap->peer(request.to.pe);
  if (!peer) return fail(ErrorCode::kUnavailable, "PE {}: nobody is there", request.to.pe.value);
  if (peer->incarnation != request.to.incarnation) {
    return fail(ErrorCode::kUnavailable, "PE {}: incarnation {} is gone, {} has taken its place",
                request.to.pe.value, request.to.incarnation, peer->incarnation);
  }
  auto layout = peer_layout(*peer, deps_.memory->layout());
  if (!layout) return tl::unexpected(layout.error());
  for (const BlockId block : request.to.blocks) {
    if (block.value < 0 || block.value >= layout->n_blocks) {
      return fail(ErrorCode::kInvalidArgument, "block {} of PE {}: it has {}", block.value,
                  request.to.pe.value, layout->n_blocks);
    }
  }
  send->layout = *layout;
  return send;
}

Status KvSender::touch(const Send& send) {
  return send.begin < send.end ? deps_.heap->put(send.target, {}) : Status{};
}

void KvSender::put_cached(Sequence& sequence) {
  Send& send = *sequence.request->send;
  const Part part{&sequence, std::max(send.begin, send.n_put), sequence.n_computed};
  for (int layer = 0; layer < send.layout.n_layers; ++layer) put(part, layer);
  // A chunk of the same step goes on from here.
  if (!send.error) send.n_put = std::max(send.n_put, sequence.n_computed);
}

bool KvSender::begin_pass(std::span<const BatchItem> items) {
  parts_.clear();
  labels_.clear();
  n_pass_tokens_ = 0;
  for (const BatchItem& item : items) {
    const Request& request = *item.sequence->request;
    if (!request.send || request.send->error) continue;
    const int begin = std::max(request.send->begin, request.send->n_put);
    if (begin >= item.end) continue;
    parts_.push_back({item.sequence, begin, item.end});
    n_pass_tokens_ += item.end - item.begin;
    if (deps_.trace != nullptr) labels_.push_back(request.label());
  }
  only_sends_ = parts_.size() == items.size();
  gave_up_pass_ = false;
  return !parts_.empty();
}

void KvSender::on_layer_begin(int, KernelClass) {
  if (deps_.trace != nullptr) layer_begin_ns_ = deps_.clock->now_ns();
}

void KvSender::on_kv_stored(int layer, KernelClass kernel_class) {
  if (kernel_class != KernelClass::kPrefill) return;  // what is sent is of the prefill class
  for (const Part& part : parts_) put(part, layer);
}

bool KvSender::on_layer_end(int layer, KernelClass kernel_class) {
  if (deps_.trace != nullptr && kernel_class == KernelClass::kPrefill) trace_layer(layer);
  gave_up_pass_ = only_sends_ && std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
                    return part.sequence->request->send->error.has_value();
                  });
  return !gave_up_pass_;
}

void KvSender::trace_layer(int layer) {
  deps_.trace->add({.name = "layer",
                    .begin_ns = layer_begin_ns_,
                    .end_ns = deps_.clock->now_ns(),
                    .requests = labels_,
                    .n_tokens = n_pass_tokens_,
                    .layer = layer});
}

// Blocks that follow one another on both sides are one piece.
void KvSender::collect_pieces(const Part& part, int layer) {
  const Send& send = *part.sequence->request->send;
  const kv::KvLayout& own = deps_.memory->layout();
  pieces_.clear();
  for (int token = part.begin; token < part.end; token += kv::kBlockTokens) {
    const auto from = part.sequence->table[static_cast<size_t>(token / kv::kBlockTokens)];
    const auto to = send.blocks[static_cast<size_t>((token - send.begin) / kv::kBlockTokens)];
    const std::span<const std::byte> bytes(deps_.memory->data() + own.offset(layer, from),
                                           own.block_bytes());
    const uint64_t offset = send.layout.offset(layer, to);
    if (!pieces_.empty()) {
      shmem::Piece& last = pieces_.back();
      if (last.offset + last.bytes.size() == offset &&
          last.bytes.data() + last.bytes.size() == bytes.data()) {
        last.bytes = {last.bytes.data(), last.bytes.size() + bytes.size()};
        continue;
      }
    }
    pieces_.push_back({offset, bytes});
  }
}

void KvSender::put(const Part& part, int layer) {
  Request& request = *part.sequence->request;
  Send& send = *request.send;
  if (send.error || part.begin >= part.end) return;
  collect_pieces(part, layer);
  const int64_t begin_ns = deps_.clock->now_ns();
  if (auto status = deps_.heap->put(send.target, pieces_); !status) {
    send.error = status.error();
    return;
  }
  const int64_t end_ns = deps_.clock->now_ns();
  int64_t n_bytes = 0;
  for (const shmem::Piece& piece : pieces_) n_bytes += static_cast<int64_t>(piece.bytes.size());
  send.sent.n_bytes += n_bytes;
  send.sent.put_ns += end_ns - begin_ns;
  deps_.metrics->put(n_bytes);
  if (deps_.trace == nullptr) return;
  const std::string label = request.label();
  deps_.trace->add({.name = "put",
                    .begin_ns = begin_ns,
                    .end_ns = end_ns,
                    .requests = std::span(&label, 1),
                    .n_tokens = part.end - part.begin,
                    .layer = layer,
                    .n_bytes = n_bytes});
}

Status KvSender::signal(Send& send) {
  deps_.metrics->sent(send.sent.put_ns);
  return send.begin < send.end ? deps_.heap->signal(send.target) : Status{};
}

}  // namespace baton::engine
