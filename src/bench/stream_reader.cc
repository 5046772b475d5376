#include "bench/stream_reader.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace baton::bench {

bool SseReader::read(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  while (!too_long_ && !bytes.empty()) {
    if (skip_line_feed_ && bytes.front() == '\n') bytes.remove_prefix(1);
    skip_line_feed_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    if (end == bytes.npos) {
      line_ += bytes;
      too_long_ = line_.size() > kMaxEventBytes;
      break;
    }
    skip_line_feed_ = bytes[end] == '\r';
    const std::string_view rest = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      read_line(rest, on_data);  // the usual case: nothing is copied
    } else {
      read_line(std::exchange(line_, {}).append(rest), on_data);
    }
    too_long_ = too_long_ || data_.size() > kMaxEventBytes;
  }
  return !too_long_;
}

void SseReader::read_line(std::string_view line,
                          const std::function<void(std::string_view)>& on_data) {
  if (line.empty()) {
    if (std::exchange(has_data_, false)) on_data(std::exchange(data_, {}));
    return;
  }
  constexpr std::string_view kField = "data";
  if (!line.starts_with(kField)) return;  // a comment, or a field that says nothing here
  line.remove_prefix(kField.size());
  if (!line.empty()) {
    if (line.front() != ':') return;
    line.remove_prefix(1);
  }
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += line;
}

namespace {

/// nlohmann's events → StreamChunk: keeps the keys that lead to where it is, as far as they matter.
class ChunkReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  StreamChunk chunk;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t number) override {
    // A count beyond int64 is nonsense, and stays absent.
    if (depth_ == 2 && at(0) == "usage" && number < (uint64_t{1} << 53)) {
      if (at(1) == "prompt_tokens") chunk.prompt_tokens = static_cast<int64_t>(number);
      if (at(1) == "completion_tokens") chunk.completion_tokens = static_cast<int64_t>(number);
    }
    return value();
  }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t& text) override {
    if (at(0) == "error" && (depth_ == 1 || (depth_ == 2 && at(1) == "message"))) {
      chunk.error = text;
    }
    // choices[0].text, choices[0].delta.content
    const bool first = at(0) == "choices" && n_choices_ == 1;
    if (first && depth_ == 3 && at(2) == "text") chunk.has_text |= !text.empty();
    if (first && depth_ == 4 && at(2) == "delta" && at(3) == "content") {
      chunk.has_text |= !text.empty();
    }
    return value();
  }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ >= 1 && depth_ <= keys_.size()) keys_[depth_ - 1] = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  /// The latest key of the object at that depth; empty for arrays.
  [[nodiscard]] std::string_view at(size_t depth) const {
    return depth < depth_ && depth < keys_.size() ? std::string_view(keys_[depth])
                                                  : std::string_view();
  }
  bool value() {
    note_choice();
    return true;
  }
  bool open() {
    note_choice();
    if (depth_ == 1 && at(0) == "error" && !chunk.error) chunk.error.emplace();
    ++depth_;
    if (depth_ <= keys_.size()) keys_[depth_ - 1].clear();
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  /// A value begins: is it an element of `choices`?
  void note_choice() {
    if (depth_ != 2 || at(0) != "choices") return;
    chunk.has_choice = true;
    ++n_choices_;
  }

  size_t depth_ = 0;
  std::array<std::string, 4> keys_;
  int n_choices_ = 0;
};

}  // namespace

StreamChunk read_stream_chunk(std::string_view json) {
  ChunkReader reader;
  const bool valid = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  const size_t start = json.find_first_not_of(" \t\r\n");
  if (!valid || start == json.npos || json[start] != '{') return {};
  reader.chunk.is_json = true;
  return std::move(reader.chunk);
}

}  // namespace baton::bench
