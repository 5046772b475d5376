// Copying into another process's memory.
#pragma once

#include <cstddef>
#include <span>

namespace baton::shmem {

/// Copies `from` to `to`; all of it is visible to others before any later store of this thread.
/// Thread-safe.
void copy_out(std::byte* to, std::span<const std::byte> from);

/// With stores that bypass the caches, whatever the size. For the choice that copy_out() makes, see
/// copy.cc.
void copy_streaming(std::byte* to, std::span<const std::byte> from);

}  // namespace baton::shmem
