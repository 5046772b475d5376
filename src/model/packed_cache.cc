#include "model/packed_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/log.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".packed";
/// No write takes as long.
constexpr std::chrono::hours kStale{1};

}  // namespace

PackedCache::PackedCache(linalg::Context& context, const Checkpoint& checkpoint,
                         const std::string& kv_identity, PackedCacheOptions options)
    : context_(context), options_(std::move(options)) {
  const std::string& stamp = checkpoint.file->stamp();
  if (stamp.empty() || checkpoint.file->tensors().empty()) options_.folder.clear();
  if (options_.folder.empty()) return;
  source_ = checkpoint.file->tensors().front().data.data();
  const std::string text = kv_identity + "\n" + stamp;
  prefix_ = fmt::format("{:016x}-", XXH3_64bits(text.data(), text.size()));
}

std::string PackedCache::path(const std::string& name) const {
  if (options_.folder.empty()) return {};
  return (fs::path(options_.folder) / fmt::format("{}{}{}", prefix_, name, kExtension)).string();
}

linalg::PackedFile& PackedCache::file(const std::string& name) {
  const auto found = files_.find(name);
  if (found != files_.end()) return found->second;
  linalg::PackedFile file(context_, {path(name), source_, options_.min_bytes});
  if (!file.status() && file.status().error().code != ErrorCode::kNotFound) {
    spdlog::warn("packed weights: {}: packing anew", file.status().error().message);
  }
  return files_.emplace(name, std::move(file)).first->second;
}

bool PackedCache::complete() const {
  size_t n_bytes = 0;
  for (const auto& [name, file] : files_) {
    if (!file.complete()) return false;
    n_bytes += file.bytes();
  }
  return n_bytes > 0;
}

void PackedCache::save() {
  remove_stale();
  bool written = false;
  for (const auto& [name, file] : files_) {
    const auto saved = file.save(context_);
    if (!saved) {
      spdlog::warn("packed weights: {}: the next start packs again", saved.error().message);
      break;
    }
    written |= *saved;
  }
  if (written) evict();
}

void PackedCache::remove_stale() const {
  std::error_code ec;
  for (fs::directory_iterator it(options_.folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (!it->path().filename().string().starts_with(linalg::kTemporaryPrefix)) continue;
    std::error_code gone;
    const auto used = it->last_write_time(gone);
    if (!gone && used + kStale < fs::file_time_type::clock::now()) fs::remove(it->path(), gone);
  }
}

void PackedCache::evict() const {
  struct Entry {
    fs::file_time_type used;
    uint64_t n_bytes;
    fs::path path;
  };
  std::vector<Entry> others;
  uint64_t n_bytes = 0;
  std::error_code ec;
  for (fs::directory_iterator it(options_.folder, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code gone;
    const Entry entry{it->last_write_time(gone), it->file_size(gone), it->path()};
    if (gone) continue;
    const std::string name = entry.path.filename().string();
    if (entry.path.extension() != kExtension || name.starts_with(linalg::kTemporaryPrefix))
      continue;
    n_bytes += entry.n_bytes;
    if (!name.starts_with(prefix_)) others.push_back(entry);
  }
  std::sort(others.begin(), others.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : others) {
    if (n_bytes <= options_.max_bytes) break;
    if (fs::remove(entry.path, ec)) n_bytes -= entry.n_bytes;
  }
}

}  // namespace baton::model
