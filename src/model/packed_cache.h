// The folder of packed weights: which files are a model's, and which others have to go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "linalg/packed_file.h"
#include "model/checkpoint.h"

namespace baton::model {

struct PackedCacheOptions {
  std::string folder;                       ///< empty = no cache
  size_t min_bytes = size_t{8} << 20;       ///< of a file; less is packed sooner than read
  uint64_t max_bytes = uint64_t{32} << 30;  ///< of the folder; what was not used longest goes first
};

/// The files of one model, named by a hash of what their bytes depend on: kv_identity (the spec, a
/// sample of every tensor, the kernel set) and the stamp of the model file (size and times: a file
/// written since has another). To hash all of a large model would take as long as to read it. How
/// the bytes are laid out is for the sections' keys to say (linalg/packed_file.h).
/// Nothing here fails: what can't be read is packed, what can't be written is warned of, once.
/// Owner: one thread.
class PackedCache {
 public:
  /// `context` and `checkpoint` outlive the cache.
  PackedCache(linalg::Context& context, const Checkpoint& checkpoint,
              const std::string& kv_identity, PackedCacheOptions options);

  /// The file of that name ("decode", "prefill", "head"), read on the first call.
  [[nodiscard]] linalg::PackedFile& file(const std::string& name);
  /// Writes what is not there yet, and makes room in the folder.
  void save();
  /// Everything that was asked for came from the cache, and something was.
  [[nodiscard]] bool complete() const;

 private:
  [[nodiscard]] std::string path(const std::string& name) const;
  void evict() const;
  /// What writers left that were killed an hour ago or more.
  void remove_stale() const;

  linalg::Context& context_;
  PackedCacheOptions options_;
  const std::byte* source_ = nullptr;
  std::string prefix_;  ///< of the names of this model's files
  std::map<std::string, linalg::PackedFile> files_;
};

}  // namespace baton::model
