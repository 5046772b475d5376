// Packed weights kept in a file, so that the next start reads them instead of packing. One file
// holds the sections (one for each Linear) of one set of weights.
//
// The format, in the machine's byte order (a file is only read where it was written):
//   Header, Section[n_sections], u64 part_hashes[…]      "the table", guarded by Header::table_hash
//   padding to 2 MiB, then the sections, each at a multiple of 64 bytes
// A section is hashed in parts of 128 KiB, so that all threads can check it. XXH3 64 everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "linalg/aligned_buffer.h"
#include "linalg/linear.h"

namespace baton::linalg {

/// Of the format above and of what is kept in it (strips, tiles.h; the tiles of PanelLinear): raise
/// it whenever the same input packs to other bytes. PackedFile.LayoutsAreThoseOfTheVersion fails if
/// you forget.
inline constexpr uint32_t kPackedVersion = 1;

/// Begins the names of files that are being written; one that is old was left by a killed process.
inline constexpr std::string_view kTemporaryPrefix = ".new-";

/// The packed bytes of one Linear, and what keeps them in memory. Cheap to copy.
class PackedBytes {
 public:
  PackedBytes() = default;
  PackedBytes(std::shared_ptr<const void> owner, std::byte* data, size_t size, bool packed)
      : owner_(std::move(owner)), data_(data), size_(size), packed_(packed) {}

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  /// The bytes are there: they were read, and must not be written.
  [[nodiscard]] bool packed() const { return packed_; }

 private:
  std::shared_ptr<const void> owner_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool packed_ = false;
};

/// What a Linear asks memory for.
struct PackedNeed {
  std::span<const MatrixView> stacked;
  std::string_view layout;  ///< of its bytes, as far as the matrices' types and shapes don't say it
  size_t n_bytes;
  const char* what;  ///< names the memory in an error
};

/// Hands out the memory of packed weights: sections of the file where it has them, else fresh
/// memory, which save() writes once everything is packed. Never in the way of a start: a file that
/// can't be used is as good as none. Owner: one thread.
class PackedFile {
 public:
  struct Options {
    std::string path;  ///< empty = no file: fresh memory only
    /// What the matrices point into: sections are found by where their sources lie in it. That the
    /// content is the same is for the path to say (model/packed_cache.h).
    const std::byte* source = nullptr;
    size_t min_bytes = 0;  ///< less than this is never written: it is packed sooner than read
  };
  /// Reads and checks the file. kNotFound when there is none, kCorrupt or kUnsupported (another
  /// version) when it is not to be used, kIo, kExhausted: all in status(), and nothing is read.
  PackedFile(Context& context, Options options);

  [[nodiscard]] const Status& status() const { return status_; }
  /// kExhausted when memory is short.
  [[nodiscard]] Result<PackedBytes> take(const PackedNeed& need);
  /// All that was taken came from the file.
  [[nodiscard]] bool complete() const { return n_fresh_ == 0; }
  /// Bytes taken so far.
  [[nodiscard]] size_t bytes() const { return n_bytes_; }
  /// Writes what was taken unless it came from the file, is small, or there is no path: to a file
  /// of another name first, so that a reader, and another writer, never sees half of one. kIo, and
  /// no file is left, when the folder can't be written or too little of the disk is free. Whether
  /// it wrote.
  [[nodiscard]] Result<bool> save(Context& context) const;

 private:
  struct Taken {
    uint64_t key;
    PackedBytes bytes;
  };
  Status load(Context& context);
  [[nodiscard]] uint64_t key(const PackedNeed& need) const;

  Options options_;
  Status status_;
  std::unordered_map<uint64_t, PackedBytes> loaded_;
  std::vector<Taken> taken_;
  std::shared_ptr<AlignedBuffer> chunk_;  ///< fresh memory is cut from
  size_t chunk_used_ = 0;
  size_t n_fresh_ = 0;
  size_t n_bytes_ = 0;
};

/// Memory of `need`: from `file`, or without one its own.
[[nodiscard]] Result<PackedBytes> take_packed(PackedFile* file, const PackedNeed& need);

}  // namespace baton::linalg
