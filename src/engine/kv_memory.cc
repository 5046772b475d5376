#include "engine/kv_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace baton::engine {

Result<MappedMemory> MappedMemory::create(size_t n_bytes, const char* what) {
  MappedMemory memory;
  if (n_bytes == 0) return memory;
  void* data = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kExhausted, "no {} bytes of memory for {}: {}", n_bytes, what,
                std::strerror(errno));
  }
  // Fewer TLB misses while attention walks through the blocks; without it all works as well.
  (void)::madvise(data, n_bytes, MADV_HUGEPAGE);
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = n_bytes;
  return memory;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<KvMemory> KvMemory::create(const kv::KvLayout& layout) {
  auto memory = MappedMemory::create(layout.total_bytes(), "KV blocks (--kv-memory)");
  if (!memory) return tl::unexpected(memory.error());
  std::byte* data = memory->data();
  return KvMemory(layout, data, std::move(*memory));
}

Result<KvMemory> KvMemory::create(const kv::KvLayout& layout, std::span<std::byte> memory) {
  if (memory.size() < layout.total_bytes()) {
    return fail(ErrorCode::kInvalidArgument, "{} bytes of the symmetric heap: KV needs {}",
                memory.size(), layout.total_bytes());
  }
  return KvMemory(layout, memory.data(), MappedMemory());
}

void KvMemory::copy_block(BlockId from, BlockId to) {
  for (int layer = 0; layer < layout_.n_layers; ++layer) {
    std::memcpy(data() + layout_.offset(layer, to), data() + layout_.offset(layer, from),
                layout_.block_bytes());
  }
}

}  // namespace baton::engine
