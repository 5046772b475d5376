#include "linalg/packed_file.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "linalg/huge_mapping.h"

namespace baton::linalg {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMagic = 0x315754504E544142;  // "BATNPTW1"
constexpr size_t kPartBytes = size_t{128} << 10;
constexpr size_t kLine = 64;
constexpr uint64_t kMaxSections = 1 << 20;  // of a header that is believed
constexpr size_t kHugePage = size_t{2} << 20;
/// Fresh memory is cut from pieces of this size, so that small matrices lie on huge pages too.
constexpr size_t kChunkBytes = size_t{32} << 20;
/// What a write leaves of the disk.
constexpr uint64_t kKeepFreeBytes = uint64_t{1} << 30;

struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t n_sections;
  uint64_t n_parts;
  uint64_t file_bytes;
  uint64_t name_hash;   ///< of the file's name: one that was renamed is another model's
  uint64_t table_hash;  ///< of this header, with zero here, and the table
};

struct Section {
  uint64_t key;
  uint64_t offset;
  uint64_t n_bytes;
};

/// Sections and hashes of the parts of all of them, in their order.
struct Table {
  std::vector<Section> sections;
  std::vector<uint64_t> hashes;
};

uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

uint64_t n_parts(const Section& section) { return (section.n_bytes + kPartBytes - 1) / kPartBytes; }

/// The first byte after the table that begins a huge page.
uint64_t data_begin(const Table& table) {
  return round_up(sizeof(Header) + table.sections.size() * sizeof(Section) +
                      table.hashes.size() * sizeof(uint64_t),
                  kHugePage);
}

uint64_t hash_of(const void* data, size_t n_bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(data, n_bytes, seed);
}

uint64_t table_hash(Header header, const Table& table) {
  header.table_hash = 0;
  const uint64_t seed = hash_of(&header, sizeof header);
  const uint64_t sections =
      hash_of(table.sections.data(), table.sections.size() * sizeof(Section), seed);
  return hash_of(table.hashes.data(), table.hashes.size() * sizeof(uint64_t), sections);
}

/// fn(section index, first byte in the section, bytes, index of the part among all), each part on
/// one thread: a section is shared out as its strips and tiles are, so that in fresh memory the
/// pages lie near the thread that will read them.
template <typename Fn>
void for_parts(Context& context, const std::vector<Section>& sections, Fn&& fn) {
  const auto n_threads = static_cast<uint64_t>(context.pool.n_threads());
  context.pool.run([&](int thread) {
    const auto t = static_cast<uint64_t>(thread);
    uint64_t first = 0;
    for (size_t s = 0; s < sections.size(); ++s) {
      const uint64_t n = n_parts(sections[s]);
      for (uint64_t p = n * t / n_threads; p < n * (t + 1) / n_threads; ++p) {
        const uint64_t at = p * kPartBytes;
        fn(s, at, std::min<uint64_t>(kPartBytes, sections[s].n_bytes - at), first + p);
      }
      first += n;
    }
  });
}

/// Closes a descriptor when it goes.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

/// False with errno set (0: the file is shorter).
bool read_at(int fd, void* to, size_t n, uint64_t offset) {
  auto* p = static_cast<char*>(to);
  while (n > 0) {
    errno = 0;
    const ssize_t got = ::pread(fd, p, n, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    n -= static_cast<size_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

uint64_t name_hash(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return hash_of(name.data(), name.size());
}

/// Reads and checks everything but the sections' bytes.
Result<Table> read_table(int fd, const std::string& path, uint64_t file_bytes) {
  Header header{};
  if (!read_at(fd, &header, sizeof header, 0) || header.magic != kMagic) {
    return fail(ErrorCode::kCorrupt, "{}: not a file of packed weights", path);
  }
  if (header.version != kPackedVersion) {
    return fail(ErrorCode::kUnsupported, "{}: packed by version {}, this one is {}", path,
                header.version, kPackedVersion);
  }
  if (header.name_hash != name_hash(path)) {
    return fail(ErrorCode::kCorrupt, "{}: was written under another name", path);
  }
  if (header.file_bytes != file_bytes) {
    return fail(ErrorCode::kCorrupt, "{}: {} bytes, {} were written", path, file_bytes,
                header.file_bytes);
  }
  if (header.n_sections > kMaxSections ||
      header.n_parts > file_bytes / kPartBytes + header.n_sections) {
    return fail(ErrorCode::kCorrupt, "{}: a header of {} sections and {} parts", path,
                header.n_sections, header.n_parts);
  }
  Table table{std::vector<Section>(header.n_sections), std::vector<uint64_t>(header.n_parts)};
  const size_t sections_bytes = table.sections.size() * sizeof(Section);
  if (!read_at(fd, table.sections.data(), sections_bytes, sizeof header) ||
      !read_at(fd, table.hashes.data(), table.hashes.size() * sizeof(uint64_t),
               sizeof header + sections_bytes) ||
      table_hash(header, table) != header.table_hash) {
    return fail(ErrorCode::kCorrupt, "{}: the table is not what was written", path);
  }
  uint64_t n = 0;
  for (const Section& section : table.sections) {
    if (section.offset % kLine != 0 || section.offset < data_begin(table) ||
        section.offset > file_bytes || section.n_bytes > file_bytes - section.offset) {
      return fail(ErrorCode::kCorrupt, "{}: a section of {} bytes at {}", path, section.n_bytes,
                  section.offset);
    }
    n += n_parts(section);
  }
  if (n != header.n_parts) {
    return fail(ErrorCode::kCorrupt, "{}: {} parts, the sections have {}", path, header.n_parts, n);
  }
  return table;
}

/// A file that is written from its beginning, under a name of its own until it is whole; gone if it
/// doesn't get there. Errors stay and are given at the end, as errno.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path) {
    // Not the process id: in containers it is the same at every start.
    std::random_device random;
    const fs::path wanted(path);
    temporary_ =
        (wanted.parent_path() / fmt::format("{}{:08x}{:08x}-{}", kTemporaryPrefix, random(),
                                            random(), wanted.filename().string()))
            .string();
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd_ < 0) errno_ = errno;
  }
  ~NewFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void append(const void* data, size_t n_bytes) {
    const auto* p = static_cast<const char*>(data);
    while (n_bytes > 0) {
      const size_t n = std::min(n_bytes, kWriteBytes - waiting_.size());
      waiting_.insert(waiting_.end(), p, p + n);
      p += n;
      n_bytes -= n;
      if (waiting_.size() == kWriteBytes) flush();
    }
  }
  /// Zeros up to byte `offset`.
  void pad_to(uint64_t offset) {
    const std::vector<char> zeros(offset - n_written_ - waiting_.size());
    append(zeros.data(), zeros.size());
  }
  int finish() {
    flush();
    if (errno_ == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) errno_ = errno;
    if (errno_ == 0) temporary_.clear();
    return errno_;
  }

 private:
  /// Whole huge pages at a time: filesystems that can then cache them so, and map them.
  static constexpr size_t kWriteBytes = 4 * kHugePage;

  void flush() {
    for (size_t done = 0; errno_ == 0 && done < waiting_.size();) {
      const ssize_t put = ::write(fd_, waiting_.data() + done, waiting_.size() - done);
      if (put > 0) {
        done += static_cast<size_t>(put);
      } else if (put == 0 || errno != EINTR) {
        errno_ = put == 0 ? ENOSPC : errno;
      }
    }
    n_written_ += waiting_.size();
    waiting_.clear();
  }

  std::string path_;
  std::string temporary_;
  int fd_;
  int errno_ = 0;
  std::vector<char> waiting_;
  uint64_t n_written_ = 0;
};

}  // namespace

PackedFile::PackedFile(Context& context, Options options) : options_(std::move(options)) {
  status_ = load(context);
  if (!status_) loaded_.clear();
}

Status PackedFile::load(Context& context) {
  const std::string& path = options_.path;
  if (path.empty()) return fail(ErrorCode::kNotFound, "no file of packed weights is wanted");
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat stat {};
  if (file.fd < 0 || ::fstat(file.fd, &stat) != 0) {
    const bool none = errno == ENOENT || errno == ENOTDIR;
    return fail(none ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: can't open: {}", path,
                std::strerror(errno));
  }
  if (!S_ISREG(stat.st_mode)) return fail(ErrorCode::kIo, "{}: not a regular file", path);
  auto table = read_table(file.fd, path, static_cast<uint64_t>(stat.st_size));
  if (!table) return tl::unexpected(table.error());
  const uint64_t begin = data_begin(*table);
  std::shared_ptr<const void> owner;
  std::byte* data = nullptr;  // of the file's byte `begin`
  const auto mapping = HugeMapping::open(file.fd, static_cast<size_t>(stat.st_size));
  if (mapping != nullptr) {
    owner = mapping;
    data = const_cast<std::byte*>(mapping->data()) + begin;  // PackedBytes::packed: never written
  } else {
    auto made =
        AlignedBuffer::create(static_cast<uint64_t>(stat.st_size) - begin, "packed weights");
    if (!made) return tl::unexpected(made.error());
    data = made->data();
    owner = std::make_shared<AlignedBuffer>(std::move(*made));
  }
  std::atomic<bool> whole{true};
  for_parts(context, table->sections, [&](size_t s, uint64_t at, uint64_t n, uint64_t part) {
    const uint64_t offset = table->sections[s].offset + at;
    std::byte* bytes = data + (offset - begin);
    if (mapping == nullptr && !read_at(file.fd, bytes, n, offset)) whole = false;
    if (hash_of(bytes, n) != table->hashes[part]) whole = false;
  });
  if (!whole) return fail(ErrorCode::kCorrupt, "{}: the weights are not what was written", path);
  for (const Section& section : table->sections) {
    loaded_[section.key] =
        PackedBytes(owner, data + (section.offset - begin), section.n_bytes, true);
  }
  (void)::futimens(file.fd, nullptr);  // the one used last is the last to be evicted
  return {};
}

uint64_t PackedFile::key(const PackedNeed& need) const {
  std::string text = fmt::format("{} {}", need.layout, need.n_bytes);
  for (const MatrixView& matrix : need.stacked) {
    text += fmt::format(";{} {} {} {}", info(matrix.type).name, matrix.n_out, matrix.n_in,
                        matrix.data - options_.source);
  }
  return hash_of(text.data(), text.size());
}

Result<PackedBytes> PackedFile::take(const PackedNeed& need) {
  n_bytes_ += need.n_bytes;
  const uint64_t section_key = key(need);
  const auto found = loaded_.find(section_key);
  if (found != loaded_.end() && found->second.size() == need.n_bytes) {
    taken_.push_back({section_key, found->second});
    return found->second;
  }
  const size_t size = round_up(need.n_bytes, kLine);
  if (chunk_ == nullptr || chunk_->size() - chunk_used_ < size) {
    auto made = AlignedBuffer::create(std::max(size, kChunkBytes), need.what);
    if (!made) return tl::unexpected(made.error());
    chunk_ = std::make_shared<AlignedBuffer>(std::move(*made));
    chunk_used_ = 0;
  }
  PackedBytes bytes(chunk_, chunk_->data() + chunk_used_, need.n_bytes, false);
  chunk_used_ += size;
  ++n_fresh_;
  taken_.push_back({section_key, bytes});
  return bytes;
}

Result<bool> PackedFile::save(Context& context) const {
  const std::string& path = options_.path;
  if (path.empty() || complete() || n_bytes_ < options_.min_bytes) return false;
  // What can't be read was said, and is hardly there to be replaced.
  if (!status_ && status_.error().code == ErrorCode::kIo) return false;
  Table table;
  uint64_t n = 0;
  for (const Taken& taken : taken_) {
    table.sections.push_back({taken.key, 0, taken.bytes.size()});
    n += n_parts(table.sections.back());
  }
  table.hashes.resize(n);
  uint64_t end = data_begin(table);
  for (Section& section : table.sections) {
    section.offset = end;
    end = round_up(end + section.n_bytes, kLine);
  }
  for_parts(context, table.sections, [&](size_t s, uint64_t at, uint64_t n_bytes, uint64_t part) {
    table.hashes[part] = hash_of(taken_[s].bytes.data() + at, n_bytes);
  });
  Header header{
      kMagic, kPackedVersion, static_cast<uint32_t>(table.sections.size()), n, end, name_hash(path),
      0};
  header.table_hash = table_hash(header, table);

  std::error_code ec;
  const fs::path folder = fs::path(path).parent_path();
  fs::create_directories(folder, ec);
  const fs::space_info space = fs::space(folder, ec);
  if (!ec && space.available < end + kKeepFreeBytes) {
    return fail(ErrorCode::kIo, "{}: {} MiB would be written, {} MiB of the disk are free", path,
                end >> 20, space.available >> 20);
  }
  NewFile file(path);
  file.append(&header, sizeof header);
  file.append(table.sections.data(), table.sections.size() * sizeof(Section));
  file.append(table.hashes.data(), table.hashes.size() * sizeof(uint64_t));
  for (size_t s = 0; s < taken_.size(); ++s) {
    file.pad_to(table.sections[s].offset);
    file.append(taken_[s].bytes.data(), taken_[s].bytes.size());
  }
  file.pad_to(end);
  if (const int error = file.finish(); error != 0) {
    return fail(ErrorCode::kIo, "{}: can't write: {}", path, std::strerror(error));
  }
  return true;
}

Result<PackedBytes> take_packed(PackedFile* file, const PackedNeed& need) {
  if (file != nullptr) return file->take(need);
  auto made = AlignedBuffer::create(need.n_bytes, need.what);
  if (!made) return tl::unexpected(made.error());
  const auto buffer = std::make_shared<AlignedBuffer>(std::move(*made));
  return PackedBytes(buffer, buffer->data(), need.n_bytes, false);
}

}  // namespace baton::linalg
