// What two members say to each other over their Unix socket (SOCK_SEQPACKET: one message = one
// packet, at most 64 KiB) before they map each other's memory. Pure; thread-safe.
//
// Handshake: the one that connected sends Hello, the other answers with Hello or Refusal; each side
// that has checked the other's Hello and watches its process sends Grant with two descriptors (its
// memfd, its doorbell), the one that connected first. So memory is given only to a process whose
// death its owner will see. Afterwards nothing is said; the end of the connection means that the
// member has left.
//
// Format (host byte order, it never leaves the host): u64 magic, u32 version, u32 kind, then
//   Hello   = str uid, u32 npes, u32 first_pe, u32 n_pes, u64 incarnation, u64 bytes_per_pe, u32
//   n_windows, str name,
//             u32 n_fields, n_fields x (str name, str value), str info
//   Grant   = u64 ticket
//   Refusal = u32 code, str text
// where str is u32 length and as many bytes. Nothing may follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "shmem/heap.h"
#include "shmem/shm/segment.h"

namespace baton::shmem {

inline constexpr size_t kMaxMessageBytes = size_t{64} << 10;
inline constexpr size_t kMaxNameBytes = 256;    ///< of members and fields
inline constexpr size_t kMaxValueBytes = 1024;  ///< of fields
inline constexpr size_t kMaxInfoBytes = 4096;   ///< MemberInfo::info
inline constexpr size_t kMaxFields = 32;
inline constexpr size_t kMaxRefusalBytes = 16384;

/// Who is there.
struct Hello {
  std::string uid;  ///< of the world
  int npes = 0;
  int first_pe = 0;
  uint64_t incarnation = 0;
  SegmentShape shape;  ///< n_pes in it
  MemberInfo member;
};

/// "You may write": comes with memfd and doorbell.
struct Grant {
  uint64_t ticket = 0;  ///< what the receiver calls itself in the sender's window slots; never 0
};

struct Refusal {
  enum class Code : uint32_t {
    kMismatch = 1,   ///< can never work: the configurations differ
    kOverlap = 2,    ///< somebody alive has one of the PEs
    kDuplicate = 3,  ///< these two have another connection
    kMalformed = 4,  ///< a message or descriptor was wrong
  };
  Code code = Code::kMalformed;
  std::string text;
};

using Message = std::variant<Hello, Grant, Refusal>;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// Any bytes: an error (kUnsupported: another version; kCorrupt) or a message whose values are all
/// in range.
[[nodiscard]] Result<Message> parse_message(std::span<const std::byte> bytes);
/// Is this a Hello that parse_message() will take? kInvalidArgument names what is too long.
[[nodiscard]] Status check_hello(const Hello& hello);
/// Can these two be in one world? Both sides get the same text: it names what differs, both values
/// and both members.
[[nodiscard]] std::optional<Refusal> compare(const Hello& one, const Hello& other);
[[nodiscard]] bool overlap(const Hello& a, const Hello& b);

/// "engine 1 (decode) at PE 3-4"
[[nodiscard]] std::string describe(const Hello& hello);
/// "PE 3-4" or "PE 3"
[[nodiscard]] std::string pe_range(int first_pe, int n_pes);

}  // namespace baton::shmem
