#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pre_tokenizer.h"

#include <pcre2.h>

namespace baton::text {
namespace {

// The patterns are linear on any input; these limits only keep a mistake in one from hurting.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackMax = 8 * 1024 * 1024;

/// Match state of a thread, shared by all pre-tokenizers.
struct MatchState {
  MatchState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

MatchState& match_state() {
  thread_local MatchState state;
  return state;
}

/// PCRE2's \s has U+180E, which lost White_Space in Unicode 6.3: spell the property out.
std::string spell_out_white_space(std::string_view pattern) {
  constexpr std::string_view kMembers = R"(\p{Z}\t-\r\x{85})";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kMembers) : fmt::format("[{}]", kMembers);
      } else if (escaped == 'S' && !in_class) {
        out += fmt::format("[^{}]", kMembers);
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

}  // namespace

struct PreTokenizer::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  /// Sets [begin, end) to the first match that isn't empty at or after `from`; false if there is
  /// none.
  bool next(std::string_view text, size_t from, size_t& begin, size_t& end) const;

  pcre2_code* code;
};

bool PreTokenizer::Code::next(std::string_view text, size_t from, size_t& begin,
                              size_t& end) const {
  MatchState& state = match_state();
  const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                             PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, state.data, state.context);
  if (rc < 0) return false;
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
  begin = range[0];
  end = range[1];
  return true;
}

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create(const std::vector<std::string_view>& patterns) {
  PreTokenizer tokenizer;
  for (const std::string_view pattern : patterns) {
    const std::string spelled = spell_out_white_space(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
    if (code == nullptr) {
      PCRE2_UCHAR message[128];
      pcre2_get_error_message(error, message, sizeof message);
      return fail(ErrorCode::kInvalidArgument, "pre-tokeniser pattern '{}': {} at offset {}",
                  spelled, reinterpret_cast<const char*>(message), offset);
    }
    // Where the JIT is not available (some sandboxes), pcre2_match interprets.
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    tokenizer.codes_.push_back(std::make_unique<Code>(code));
  }
  return tokenizer;
}

void PreTokenizer::split(std::string_view text, std::vector<size_t>& ends) const {
  if (text.empty()) return;
  const size_t first = ends.size();
  ends.push_back(text.size());
  std::vector<size_t> pieces;
  for (const auto& code : codes_) {
    pieces.assign(ends.begin() + static_cast<ptrdiff_t>(first), ends.end());
    ends.resize(first);
    size_t piece_begin = 0;
    for (const size_t piece_end : pieces) {
      // A subject of its own, so that lookarounds and anchors see the piece only.
      const std::string_view piece = text.substr(piece_begin, piece_end - piece_begin);
      size_t done = 0;
      size_t begin = 0;
      size_t end = 0;
      while (done < piece.size() && code->next(piece, done, begin, end)) {
        if (begin > done) ends.push_back(piece_begin + begin);
        ends.push_back(piece_begin + end);
        done = end;
      }
      if (done < piece.size()) ends.push_back(piece_end);
      piece_begin = piece_end;
    }
  }
}

}  // namespace baton::text
