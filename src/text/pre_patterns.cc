// The pre-tokeniser patterns by the name that GGUF files give them (tokenizer.ggml.pre).
//
// Source: the Split patterns of the models' own tokenizer.json. Contractions are spelled out letter
// by letter instead of (?i:…), which would fold U+017F to s.
#include <string_view>

#include "format/gguf.h"
#include "text/pre_tokenizer.h"

namespace baton::text {
namespace {

// GPT-2. What no alternative takes (a single space before a word's letter can't happen; white space
// at the end of a run can) is a word of its own.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";

#define BATON_CONTRACTION R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))"
#define BATON_WHITE_SPACE R"(\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr std::string_view kLlama3 = BATON_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" BATON_WHITE_SPACE;
constexpr std::string_view kQwen2 = BATON_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" BATON_WHITE_SPACE;
constexpr std::string_view kQwen35 = BATON_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" BATON_WHITE_SPACE;
constexpr std::string_view kMiniCpm5 = BATON_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|)" BATON_WHITE_SPACE;
constexpr std::string_view kSeedCoder = BATON_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|)" BATON_WHITE_SPACE;
constexpr std::string_view kBailing =
    BATON_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|)"
                      R"(\s*[\r\n]|\s+(?!\S)|\s+)";

// GPT-4o and its kin: upper then lower case, so that camelCase splits.
#define BATON_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define BATON_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?)" BATON_UPPER "*" BATON_LOWER "+(?:" BATON_CONTRACTION
    ")?"
    R"(|[^\r\n\p{L}\p{N}]?)" BATON_UPPER "+" BATON_LOWER "*(?:" BATON_CONTRACTION
    ")?"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" BATON_WHITE_SPACE;
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?)" BATON_UPPER "*" BATON_LOWER
                                     "+"
                                     R"(|[^\r\n\p{L}\p{N}]?)" BATON_UPPER "+" BATON_LOWER
                                     "*"
                                     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" BATON_WHITE_SPACE;

constexpr std::string_view kBloom =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";

// Falcon's, and what GGUF calls "default".
constexpr std::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kThreeAsciiDigits = R"([0-9][0-9][0-9])";
constexpr std::string_view kDigits = R"(\p{N}+)";

// DeepSeek. Their letters are a list of ranges, not a property.
constexpr std::string_view kNewline = R"([\r\n])";
constexpr std::string_view kCjk = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[)"
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF})"
    R"(\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D})"
    R"(\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5})"
    R"(\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B})"
    R"(\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})"
    R"(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115})"
    R"(\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})"
    R"(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3})"
    R"(\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})"
    R"(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})"
    R"(]+)";
constexpr std::string_view kDeepSeekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
// \s+$ of the model; the lookbehind and the possessive + keep it linear on long runs.
constexpr std::string_view kTrailingSpace = R"((?<!\s)\s++\z)";
constexpr std::string_view kLetters = R"(\s?\p{L}+)";
constexpr std::string_view kPunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kHanAndKana =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|)" BATON_WHITE_SPACE;

#undef BATON_CONTRACTION
#undef BATON_WHITE_SPACE
#undef BATON_UPPER
#undef BATON_LOWER

struct NamedRule {
  std::vector<std::string_view> names;
  PreRule rule;
};

constexpr bool kIgnoreMerges = true;
constexpr bool kAddBos = true;

const std::vector<NamedRule>& named_rules() {
  static const std::vector<NamedRule> rules = {
      {{"default", ""}, {{kDefaultPunctuation, kGpt2, kDigits, kThreeAsciiDigits}}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat",
        "mellum", "a.x-4.0", "jina-v1-en", "jina-v2-code", "jina-v2-es", "jina-v2-de", "jina-es",
        "jina-de", "roberta-bpe", "modern-bert", "exaone4"},
       {{kGpt2}}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       {{kDigit, kGpt2}}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
       {{kLlama3}, kIgnoreMerges, kAddBos}},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {{kLlama3}}},
      {{"glm4", "glm5"}, {{kLlama3}, kIgnoreMerges}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "grok-2",
        "solar-open"},
       {{kQwen2}}},
      {{"qwen35"}, {{kQwen35}}},
      {{"minicpm5"}, {{kThreeDigits, kMiniCpm5}, kIgnoreMerges}},
      {{"seed-coder"}, {{kSeedCoder}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {{kBailing}}},
      {{"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {{kGpt4o}}},
      {{"tekken"}, {{kTekken}, kIgnoreMerges, kAddBos}},
      {{"poro-chat", "bloom", "gpt3-finnish"}, {{kBloom}}},
      {{"viking"}, {{kBloom, kDigit}}},
      {{"falcon"}, {{kFalconPunctuation, kGpt2, kThreeAsciiDigits}}},
      {{"deepseek-llm"},
       {{kNewline, kDeepSeekLetters, kDeepSeekPunctuation, kTrailingSpace, kCjk, kDigits}}},
      {{"deepseek-coder"}, {{kNewline, kLetters, kPunctuation, kCjk, kDigit}}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {{kThreeDigits, kHanAndKana, kDeepSeek3}}},
  };
  return rules;
}

}  // namespace

Result<PreRule> find_pre_rule(std::string_view pre) {
  std::string known;
  for (const NamedRule& named : named_rules()) {
    for (const std::string_view name : named.names) {
      if (name == pre) return named.rule;
      if (!name.empty()) known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    }
  }
  return fail(ErrorCode::kUnsupported, "tokenizer.ggml.pre is {}; known are {}",
              format::quoted(pre), known);
}

}  // namespace baton::text
