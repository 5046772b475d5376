#include "linalg/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>

namespace baton::linalg {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void AlignedBuffer::Free::operator()(std::byte* p) const { std::free(p); }

Result<AlignedBuffer> AlignedBuffer::create(size_t n_bytes, const char* what) {
  const size_t alignment = n_bytes >= kHugePage ? kHugePage : kCacheLine;
  const size_t size = (n_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  // aligned_alloc wants a multiple of the alignment; the pages of the rest are never touched.
  const size_t allocated = (size + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, allocated == 0 ? alignment : allocated);
  if (p == nullptr) {
    return fail(ErrorCode::kExhausted, "{}: no memory for {} bytes", what, n_bytes);
  }
  // Advice only: without huge pages everything works, a little slower.
  if (alignment == kHugePage) (void)madvise(p, size, MADV_HUGEPAGE);
  AlignedBuffer buffer;
  buffer.data_.reset(static_cast<std::byte*>(p));
  buffer.size_ = n_bytes;
  return buffer;
}

}  // namespace baton::linalg
