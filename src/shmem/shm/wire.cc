#include "shmem/shm/wire.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shmem/world.h"

namespace baton::shmem {
namespace {

constexpr uint64_t kMagic = 0x4d48534e4f544142;  // "BATONSHM"
constexpr uint32_t kVersion = 1;
enum class Kind : uint32_t { kHello = 1, kGrant = 2, kRefusal = 3 };

class Encoder {
 public:
  explicit Encoder(Kind kind) {
    u64(kMagic);
    u32(kVersion);
    u32(static_cast<uint32_t>(kind));
  }
  void u32(uint32_t value) { raw(&value, sizeof value); }
  void u64(uint64_t value) { raw(&value, sizeof value); }
  void integer(int value) { u32(static_cast<uint32_t>(value)); }
  void text(std::string_view value) {
    u32(static_cast<uint32_t>(value.size()));
    raw(value.data(), value.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void raw(const void* data, size_t n) {
    const auto* start = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), start, start + n);
  }
  std::vector<std::byte> bytes_;
};

/// Reads fields in order; the first one that can't be right makes it fail, and all later ones zero.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : rest_(bytes) {}

  uint32_t u32(const char* what) { return number<uint32_t>(what); }
  uint64_t u64(const char* what) { return number<uint64_t>(what); }
  int integer(const char* what, int low, int high) {
    const auto value = u32(what);
    if (error_.empty() && (value > static_cast<uint32_t>(high) || static_cast<int>(value) < low)) {
      error_ = fmt::format("{} is {}, expected {} to {}", what, value, low, high);
    }
    return error_.empty() ? static_cast<int>(value) : 0;
  }
  std::string text(const char* what, size_t max_bytes) {
    const size_t n = u32(what);
    if (!error_.empty()) return {};
    if (n > max_bytes || n > rest_.size()) {
      error_ = fmt::format("{} has {} bytes, expected up to {}, and {} are there", what, n,
                           max_bytes, rest_.size());
      return {};
    }
    std::string value(reinterpret_cast<const char*>(rest_.data()), n);
    rest_ = rest_.subspan(n);
    return value;
  }
  [[nodiscard]] bool ok() const { return error_.empty(); }
  void fail_with(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }
  [[nodiscard]] Status end() {
    if (error_.empty() && !rest_.empty()) error_ = fmt::format("{} bytes too many", rest_.size());
    if (!error_.empty()) return fail(ErrorCode::kCorrupt, "message of a peer: {}", error_);
    return {};
  }

 private:
  template <typename T>
  T number(const char* what) {
    if (!error_.empty()) return 0;
    if (rest_.size() < sizeof(T)) {
      error_ = fmt::format("ends before {}", what);
      return 0;
    }
    T value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }

  std::span<const std::byte> rest_;
  std::string error_;
};

std::vector<std::byte> encode_hello(const Hello& hello) {
  Encoder out(Kind::kHello);
  out.text(hello.uid);
  out.integer(hello.npes);
  out.integer(hello.first_pe);
  out.integer(hello.shape.n_pes);
  out.u64(hello.incarnation);
  out.u64(hello.shape.bytes_per_pe);
  out.integer(hello.shape.n_windows);
  out.text(hello.member.name);
  out.integer(static_cast<int>(hello.member.descriptor.size()));
  for (const Field& field : hello.member.descriptor) {
    out.text(field.name);
    out.text(field.value);
  }
  out.text(hello.member.info);
  return out.take();
}

Hello decode_hello(Decoder& in) {
  Hello hello;
  hello.uid = in.text("uid", kMaxUidBytes);
  hello.npes = in.integer("npes", 1, kMaxPes);
  hello.first_pe = in.integer("first_pe", 0, hello.npes - 1);
  hello.shape.n_pes = in.integer("n_pes", 1, hello.npes - hello.first_pe);
  hello.incarnation = in.u64("incarnation");
  if (hello.incarnation == 0) in.fail_with("incarnation is 0");
  hello.shape.bytes_per_pe = in.u64("bytes_per_pe");
  hello.shape.n_windows = in.integer("n_windows", 1, kMaxWindows);
  hello.member.name = in.text("name", kMaxNameBytes);
  const int n_fields = in.integer("n_fields", 0, static_cast<int>(kMaxFields));
  for (int i = 0; i < n_fields; ++i) {
    Field field;
    field.name = in.text("field name", kMaxNameBytes);
    field.value = in.text("field value", kMaxValueBytes);
    hello.member.descriptor.push_back(std::move(field));
  }
  hello.member.info = in.text("info", kMaxInfoBytes);
  if (auto status = hello.shape.check(); !status) in.fail_with(status.error().message);
  return hello;
}

Message decode(Kind kind, Decoder& in) {
  if (kind == Kind::kHello) return decode_hello(in);
  if (kind == Kind::kGrant) {
    const Grant grant{in.u64("ticket")};
    if (grant.ticket == 0) in.fail_with("ticket is 0");
    return grant;
  }
  if (kind == Kind::kRefusal) {
    Refusal refusal;
    refusal.code = static_cast<Refusal::Code>(in.integer("code", 1, 4));
    refusal.text = in.text("text", kMaxRefusalBytes);
    return refusal;
  }
  in.fail_with(fmt::format("unknown kind {}", static_cast<uint32_t>(kind)));
  return Refusal{};
}

const std::string* value_of(const Hello& hello, const std::string& name) {
  for (const Field& field : hello.member.descriptor) {
    if (field.name == name) return &field.value;
  }
  return nullptr;
}

void add_difference(std::string& text, const std::string& difference) {
  text += (text.empty() ? "" : "; ") + difference;
}

/// Every field that the two don't agree on, in a's order, then those that only b has.
std::string differences(const Hello& a, const Hello& b) {
  std::string text;
  const auto add = [&](const std::string& what, const std::string& in_a, const std::string& in_b) {
    add_difference(text, fmt::format("{} is {} in {}, but {} in {}", what, in_a, describe(a), in_b,
                                     describe(b)));
  };
  if (a.uid != b.uid) add("world uid", a.uid, b.uid);
  if (a.npes != b.npes) add("npes", std::to_string(a.npes), std::to_string(b.npes));
  for (const Field& field : a.member.descriptor) {
    const std::string* other = value_of(b, field.name);
    if (!other || *other != field.value) add(field.name, field.value, other ? *other : "absent");
  }
  for (const Field& field : b.member.descriptor) {
    if (!value_of(a, field.name)) add(field.name, "absent", field.value);
  }
  if (text.size() > kMaxRefusalBytes) text.resize(kMaxRefusalBytes);
  return text;
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message)) return encode_hello(*hello);
  if (const auto* grant = std::get_if<Grant>(&message)) {
    Encoder out(Kind::kGrant);
    out.u64(grant->ticket);
    return out.take();
  }
  const auto& refusal = std::get<Refusal>(message);
  Encoder out(Kind::kRefusal);
  out.u32(static_cast<uint32_t>(refusal.code));
  out.text(std::string_view(refusal.text).substr(0, kMaxRefusalBytes));
  return out.take();
}

Result<Message> parse_message(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxMessageBytes) {
    return fail(ErrorCode::kCorrupt, "message of a peer: more than {} bytes", kMaxMessageBytes);
  }
  Decoder in(bytes);
  if (in.u64("magic") != kMagic) in.fail_with("not from a baton heap");
  const uint32_t version = in.u32("version");
  if (in.ok() && version != kVersion) {
    return fail(ErrorCode::kUnsupported, "a peer speaks version {} of the protocol, this one {}",
                version, kVersion);
  }
  const auto kind = static_cast<Kind>(in.u32("kind"));
  Message message = decode(kind, in);
  if (auto status = in.end(); !status) return tl::unexpected(status.error());
  return message;
}

Status check_hello(const Hello& hello) {
  const MemberInfo& member = hello.member;
  const auto too_long = [](std::string_view what, size_t n, size_t max) {
    return fail(ErrorCode::kInvalidArgument, "heap member: {} has {} bytes, expected up to {}",
                what, n, max);
  };
  if (member.name.size() > kMaxNameBytes)
    return too_long("name", member.name.size(), kMaxNameBytes);
  if (member.info.size() > kMaxInfoBytes)
    return too_long("info", member.info.size(), kMaxInfoBytes);
  if (member.descriptor.size() > kMaxFields) {
    return fail(ErrorCode::kInvalidArgument, "heap member: {} descriptor fields, expected up to {}",
                member.descriptor.size(), kMaxFields);
  }
  for (const Field& field : member.descriptor) {
    if (field.name.size() > kMaxNameBytes) {
      return too_long("a field's name", field.name.size(), kMaxNameBytes);
    }
    if (field.value.size() > kMaxValueBytes) {
      return too_long("field " + field.name, field.value.size(), kMaxValueBytes);
    }
  }
  return hello.shape.check();
}

std::optional<Refusal> compare(const Hello& one, const Hello& other) {
  const bool in_order =
      std::pair(one.first_pe, one.incarnation) <= std::pair(other.first_pe, other.incarnation);
  const Hello& a = in_order ? one : other;
  const Hello& b = in_order ? other : one;
  std::string different = differences(a, b);
  if (!different.empty()) return Refusal{Refusal::Code::kMismatch, std::move(different)};
  if (!overlap(a, b)) return std::nullopt;
  const int end = std::min(a.first_pe + a.shape.n_pes, b.first_pe + b.shape.n_pes);
  return Refusal{Refusal::Code::kOverlap,
                 fmt::format("{} and {} both claim {}", describe(a), describe(b),
                             pe_range(b.first_pe, end - b.first_pe))};
}

bool overlap(const Hello& a, const Hello& b) {
  return a.first_pe < b.first_pe + b.shape.n_pes && b.first_pe < a.first_pe + a.shape.n_pes;
}

std::string describe(const Hello& hello) {
  return fmt::format("{} at {}", hello.member.name, pe_range(hello.first_pe, hello.shape.n_pes));
}

std::string pe_range(int first_pe, int n_pes) {
  return n_pes == 1 ? fmt::format("PE {}", first_pe)
                    : fmt::format("PE {}-{}", first_pe, first_pe + n_pes - 1);
}

}  // namespace baton::shmem
