// The memory that KV blocks lie in: the engine's part of the symmetric heap or, outside of any
// world, an anonymous mapping. Of either, pages exist once they are written.
#pragma once

#include <cstddef>
#include <span>

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
  /// In memory of the caller's that outlives it; kInvalidArgument when it is too small.
  [[nodiscard]] static Result<KvMemory> create(const kv::KvLayout& layout,
                                               std::span<std::byte> memory);

  [[nodiscard]] const kv::KvLayout& layout() const { return layout_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  /// Copies one block in every layer.
  void copy_block(BlockId from, BlockId to);

 private:
  KvMemory(const kv::KvLayout& layout, std::byte* data, MappedMemory owned)
      : layout_(layout), owned_(std::move(owned)), data_(data) {}

  kv::KvLayout layout_;
  MappedMemory owned_;  ///< empty if it is the caller's
  std::byte* data_;
};

}  // namespace baton::engine
