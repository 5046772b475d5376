// The memory that KV blocks lie in: one anonymous mapping, of which pages exist once they are
// written.
#pragma once

#include <cstddef>

#include "base/ids.h"
#include "base/result.h"
#include "kv/layout.h"

namespace baton::engine {

/// Zeroed, page-aligned memory from the operating system. Movable owner.
class MappedMemory {
 public:
  MappedMemory() = default;
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  /// kExhausted when the system has not so much; `what` names the memory in the message.
  [[nodiscard]] static Result<MappedMemory> create(size_t n_bytes, const char* what);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// KV blocks of all layers, by layout. Owner: the engine thread.
class KvMemory {
 public:
  [[nodiscard]] static Result<KvMemory> create(const kv::KvLayout& layout);

  [[nodiscard]] const kv::KvLayout& layout() const { return layout_; }
  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  /// Copies one block in every layer.
  void copy_block(BlockId from, BlockId to);

 private:
  KvMemory(const kv::KvLayout& layout, MappedMemory memory)
      : layout_(layout), memory_(std::move(memory)) {}

  kv::KvLayout layout_;
  MappedMemory memory_;
};

}  // namespace baton::engine
