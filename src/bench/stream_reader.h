// What comes back: a server-sent event stream of OpenAI chunks, cut into events and read without
// building documents.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace baton::bench {

/// Cuts a byte stream into server-sent events, however it arrives. Thread-compatible.
/// Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, of which only "data"
/// matters here.
class SseReader {
 public:
  /// `on_data` gets each event's data (its lines joined by \n), as soon as the empty line behind it
  /// is there. False: an event is over the limit of bytes; nothing is read any more.
  bool read(std::string_view bytes, const std::function<void(std::string_view)>& on_data);

  static constexpr size_t kMaxEventBytes = size_t{16} << 20;

 private:
  void read_line(std::string_view line, const std::function<void(std::string_view)>& on_data);

  std::string line_;  ///< the beginning of a line
  std::string data_;  ///< of an event that isn't complete
  bool has_data_ = false;
  bool skip_line_feed_ = false;  ///< the last byte was \r
  bool too_long_ = false;
};

/// What a chunk of a completion stream says, as far as a benchmark wants to know.
struct StreamChunk {
  bool is_json = false;     ///< an object
  bool has_choice = false;  ///< `choices` is not empty
  bool has_text = false;    ///< its first choice has text or delta.content that is not empty
  std::optional<int64_t> prompt_tokens;  ///< of `usage`
  std::optional<int64_t> completion_tokens;
  std::optional<std::string> error;  ///< `error`: its message
};
[[nodiscard]] StreamChunk read_stream_chunk(std::string_view json);

}  // namespace baton::bench
