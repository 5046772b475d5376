// The messages between router and engines as JSON (docs/protocol.md has an example of each), for
// both sides: what the router writes the engine reads, and the other way round.
//
// Numbers of 64 bits (ids, hashes, tags, incarnations, seeds) are strings of decimal digits, so
// that no reader rounds them. Floats arrive as the very same bits: they are written as doubles, and
// the three that JSON lacks as "inf", "-inf" and "nan". Unknown fields are ignored; a wrong type or
// range is refused by the field's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "base/engine_info.h"
#include "base/handoff.h"
#include "base/token_request.h"

namespace baton::api {

inline constexpr const char* kAttachPath = "/v1/microserving/attach";
inline constexpr const char* kPrepRecvPath = "/v1/microserving/prep_recv";
inline constexpr const char* kRemoteSendPath = "/v1/microserving/remote_send";
inline constexpr const char* kStartGeneratePath = "/v1/microserving/start_generate";
inline constexpr const char* kReleasePath = "/v1/microserving/release";
inline constexpr const char* kFrameContentType = "application/x-ndjson";

/// What a reader checks token ids and ranges against: the engine's own numbers.
struct WireLimits {
  int n_vocab = 0;
  int context_tokens = 0;
  int block_tokens = 16;
};

// ---- Router → engine. The writers are the router's, the readers the engine's. ----

/// POST attach: opens a session.
struct AttachRequest {
  std::string router;  ///< a name for the log
};
[[nodiscard]] std::string write_attach(const AttachRequest& request);
[[nodiscard]] ApiResult<AttachRequest> read_attach(std::string_view body);

/// A message and where it belongs: what is started under a session ends with it.
template <typename T>
struct InSession {
  std::string session;  ///< empty = under none
  T message;
};
[[nodiscard]] std::string write_prep_recv(const InSession<PrepareReceive>& request);
[[nodiscard]] ApiResult<InSession<PrepareReceive>> read_prep_recv(std::string_view body,
                                                                  const WireLimits& limits);
[[nodiscard]] std::string write_remote_send(const InSession<RemoteSend>& request);
[[nodiscard]] ApiResult<InSession<RemoteSend>> read_remote_send(std::string_view body,
                                                                const WireLimits& limits);
[[nodiscard]] std::string write_start_generate(const InSession<TokenRequest>& request);
[[nodiscard]] ApiResult<InSession<TokenRequest>> read_start_generate(std::string_view body,
                                                                     const WireLimits& limits);

/// POST release: gives a lease back, or ends a request (or one choice of it) of the session.
struct Release {
  std::optional<LeaseId> lease;
  std::optional<RequestId> request;  ///< of start_generate or remote_send
  std::optional<int> choice;         ///< only with a request
};
[[nodiscard]] std::string write_release(const InSession<Release>& request);
/// Exactly one of lease and request is there; a request needs a session.
[[nodiscard]] ApiResult<InSession<Release>> read_release(std::string_view body);

// ---- Engine → router. The writers are the engine's, the readers the router's. ----
// The readers' errors are kCorrupt. The lines of a stream are written with their newline and read
// with or without it.

/// The first line of the stream that answers attach.
struct Attached {
  std::string session;
  EngineInfo engine;
};
[[nodiscard]] std::string write_attached(const Attached& attached);
[[nodiscard]] Result<Attached> read_attached(std::string_view line);

/// Each further line: what one engine step brought, or a sign of life.
struct Frame {
  std::vector<RequestUpdate> updates;
  EngineState state;
};
[[nodiscard]] std::string write_frame(const Frame& frame);
/// Token ids are checked against `n_vocab`.
[[nodiscard]] Result<Frame> read_frame(std::string_view line, int n_vocab);

/// The answers to prep_recv and remote_send.
[[nodiscard]] std::string write_prepared(const PreparedReceive& prepared, uint64_t incarnation);
[[nodiscard]] Result<PreparedReceive> read_prepared(std::string_view body);
[[nodiscard]] std::string write_sent(const SentKv& sent, uint64_t incarnation);
[[nodiscard]] Result<SentKv> read_sent(std::string_view body, int n_vocab);
/// The answer to start_generate (its first line when it is a stream of its own) and to release.
[[nodiscard]] std::string write_done(uint64_t incarnation);
/// Of any answer.
[[nodiscard]] Result<uint64_t> read_incarnation(std::string_view body);

/// The engine's refusal as an error of this side. 400 → kInvalidArgument, 404 → kNotFound,
/// 429 → kExhausted (retryable), 5xx and 409 (it is not the engine that was meant) →
/// kUnavailable, all else → kInternal. `body` may be anything.
[[nodiscard]] Error read_error(int status, std::string_view body);

}  // namespace baton::api
