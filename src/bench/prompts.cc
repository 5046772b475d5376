#include "bench/prompts.h"

#include <iterator>
#include <string_view>

#include "bench/json_numbers.h"

namespace baton::bench {
namespace {

constexpr std::string_view kWords[] = {
    "the",     "of",      "and",     "to",     "in",    "is",      "that",    "for",     "it",
    "as",      "was",     "with",    "be",     "by",    "on",      "not",     "he",      "his",
    "but",     "at",      "are",     "this",   "have",  "from",    "or",      "had",     "an",
    "they",    "which",   "one",     "you",    "were",  "all",     "her",     "she",     "there",
    "would",   "their",   "we",      "him",    "been",  "has",     "when",    "who",     "will",
    "no",      "more",    "if",      "out",    "so",    "up",      "said",    "what",    "its",
    "about",   "than",    "into",    "them",   "can",   "only",    "other",   "time",    "new",
    "some",    "could",   "these",   "two",    "may",   "first",   "then",    "do",      "any",
    "like",    "my",      "now",     "over",   "such",  "our",     "man",     "me",      "even",
    "most",    "made",    "after",   "also",   "well",  "did",     "many",    "must",    "years",
    "back",    "through", "much",    "where",  "your",  "way",     "down",    "should",  "because",
    "long",    "each",    "just",    "state",  "those", "people",  "too",     "little",  "how",
    "good",    "world",   "make",    "very",   "year",  "still",   "see",     "own",     "work",
    "men",     "day",     "get",     "here",   "old",   "life",    "both",    "between", "being",
    "under",   "three",   "never",   "know",   "same",  "last",    "another", "while",   "us",
    "off",     "might",   "great",   "go",     "come",  "since",   "against", "right",   "came",
    "take",    "used",    "himself", "few",    "house", "use",     "place",   "during",  "high",
    "without", "again",   "home",    "around", "small", "however", "found"};

/// fn(random) for every token: of a segment's own random numbers.
template <typename Fn>
void for_tokens(const PlannedRequest& request, Fn&& fn) {
  for (const Segment& segment : request.prompt) {
    Random random(segment.seed);
    for (int i = 0; i < segment.n_tokens; ++i) fn(random);
  }
}

}  // namespace

std::vector<TokenId> prompt_ids(const PlannedRequest& request, const PromptOptions& options) {
  std::vector<TokenId> out;
  for_tokens(request, [&](Random& random) {
    out.push_back(options.first_id + static_cast<TokenId>(random.below(options.n_ids)));
  });
  return out;
}

namespace {

std::string ids_json(const PlannedRequest& request, const PromptOptions& options) {
  std::string out = "[";
  for (const TokenId id : prompt_ids(request, options)) {
    fmt::format_to(std::back_inserter(out), "{}{}", out.size() > 1 ? "," : "", id);
  }
  return out + "]";
}

}  // namespace

std::string prompt_words(const PlannedRequest& request) {
  std::string out;
  out.reserve(static_cast<size_t>(request.n_prompt()) * 6);
  for_tokens(request, [&](Random& random) {
    if (!out.empty()) out += ' ';
    out += kWords[random.below(static_cast<uint32_t>(std::size(kWords)))];
  });
  return out;
}

std::string request_body(const PlannedRequest& request, const PromptOptions& options) {
  api::JsonWriter json;
  json.begin_object();
  if (!options.model.empty()) json.key("model").string(options.model);
  if (options.chat) {
    json.key("messages").begin_array().begin_object().key("role").string("user");
    json.key("content").string(prompt_words(request)).end_object().end_array();
  } else if (options.token_ids) {
    json.key("prompt").raw(ids_json(request, options));
  } else {
    json.key("prompt").string(prompt_words(request));
  }
  json.key("max_tokens").integer(request.n_output);
  json.key("temperature");
  write_number(json, options.temperature);
  if (options.ignore_eos) json.key("ignore_eos").boolean(true);
  json.key("stream").boolean(true).key("stream_options").begin_object();
  json.key("include_usage").boolean(true).end_object().end_object();
  return json.take();
}

}  // namespace baton::bench
