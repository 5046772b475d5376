// Large aligned memory that is not initialised and says when there is too little.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"

namespace baton::linalg {

/// Owns bytes aligned to 64 (to 2 MiB and backed by huge pages where the system grants them, from
/// 2 MiB on: a stream over weights then misses no TLB). Movable; thread-compatible.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// kExhausted when the system has too little memory; `what` names the thing in the message.
  [[nodiscard]] static Result<AlignedBuffer> create(size_t n_bytes, const char* what);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] size_t size() const { return size_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace baton::linalg
