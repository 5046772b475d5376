// Reading a trace's file: zlib inflates it, and reads what isn't compressed as it is.
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "bench/trace.h"

namespace baton::bench {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;
constexpr unsigned kReadBytes = 1 << 20;

struct Close {
  void operator()(gzFile_s* file) const { ::gzclose(file); }
};

}  // namespace

Result<std::vector<TraceRow>> read_trace(const std::string& path, size_t most_rows) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return fail(ErrorCode::kIo, "{}: a folder, not a trace", path);
  }
  errno = 0;
  const std::unique_ptr<gzFile_s, Close> file(::gzopen(path.c_str(), "rb"));
  if (!file) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", path,
                std::strerror(errno != 0 ? errno : ENOMEM));
  }
  std::string text;
  while (true) {
    const size_t before = text.size();
    text.resize(before + kReadBytes);
    const int n = ::gzread(file.get(), text.data() + before, kReadBytes);
    if (n < 0) {
      int code = 0;
      const char* what = ::gzerror(file.get(), &code);
      return fail(code == Z_ERRNO ? ErrorCode::kIo : ErrorCode::kCorrupt, "{}: {}", path,
                  code == Z_ERRNO ? std::strerror(errno) : what);
    }
    text.resize(before + static_cast<size_t>(n));
    if (n == 0) break;
    if (text.size() > kMaxTextBytes) {
      return fail(ErrorCode::kCorrupt, "{}: over {} MiB of text", path, kMaxTextBytes >> 20);
    }
  }
  int code = Z_OK;
  const char* what = ::gzerror(file.get(), &code);
  if (code != Z_OK) return fail(ErrorCode::kCorrupt, "{}: {}", path, what);
  return parse_trace(text, path, most_rows);
}

}  // namespace baton::bench
