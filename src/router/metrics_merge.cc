#include "router/metrics_merge.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace baton::router {
namespace {

/// The series of one name, with what is said about it.
struct Family {
  std::string help;  ///< the whole line
  std::string type;  ///< likewise
  std::string samples;
};

/// Families by name; a map, so that the order doesn't depend on who answers first.
using Families = std::map<std::string, Family, std::less<>>;

bool is_name_char(char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
         (!first && c >= '0' && c <= '9');
}

size_t name_length(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && is_name_char(text[n], n == 0)) ++n;
  return n;
}

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    c == '\n' ? out += "\\n" : out += c;
  }
  return out;
}

/// A sample line in its parts.
struct Sample {
  std::string_view name;
  std::string_view labels;  ///< between the braces
  std::string_view rest;    ///< value and perhaps a timestamp, with the space before
};

/// The length of `name="value",…` up to the closing brace; nothing if it isn't that, or if it has a
/// label that we are about to add.
std::optional<size_t> labels_length(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && text[at] != '}') {
    const size_t n = name_length(text.substr(at));
    const std::string_view label = text.substr(at, n);
    if (n == 0 || label == "engine" || label == "role") return std::nullopt;
    at += n;
    if (text.substr(at, 2) != "=\"") return std::nullopt;
    for (at += 2; at < text.size() && text[at] != '"'; ++at) {
      if (text[at] == '\\') ++at;
    }
    if (++at > text.size()) return std::nullopt;
    if (at < text.size() && text[at] == ',') ++at;
  }
  if (at >= text.size()) return std::nullopt;
  return at;
}

bool is_value(std::string_view rest) {
  if (rest.empty() || rest[0] != ' ') return false;
  const std::string text(rest.substr(1));
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return false;
  if (*end == ' ') std::strtoll(end + 1, &end, 10);  // a timestamp
  return *end == '\0';
}

std::optional<Sample> parse_sample(std::string_view line) {
  Sample out;
  const size_t n = name_length(line);
  if (n == 0) return std::nullopt;
  out.name = line.substr(0, n);
  out.rest = line.substr(n);
  if (out.rest.starts_with('{')) {
    const auto length = labels_length(out.rest.substr(1));
    if (!length) return std::nullopt;
    out.labels = out.rest.substr(1, *length);
    out.rest.remove_prefix(*length + 2);
  }
  if (!is_value(out.rest)) return std::nullopt;
  return out;
}

/// Whether a sample of this name belongs to `family`, whose TYPE line is given.
bool belongs(std::string_view sample, std::string_view family, std::string_view type) {
  if (!sample.starts_with(family)) return false;
  const std::string_view suffix = sample.substr(family.size());
  if (suffix.empty()) return true;
  const bool has_parts = type.ends_with(" histogram") || type.ends_with(" summary");
  return has_parts && (suffix == "_bucket" || suffix == "_sum" || suffix == "_count");
}

/// Adds the lines of `text`, with `labels` before their own.
void add_text(std::string_view text, const std::string& labels, const std::set<std::string>& except,
              Families& out) {
  std::string current;  // the family whose HELP or TYPE came last
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool is_help = line.starts_with("# HELP ");
    if (is_help || line.starts_with("# TYPE ")) {
      const std::string_view rest = line.substr(7);
      current = rest.substr(0, name_length(rest));
      if (current.empty() || except.contains(current)) continue;
      Family& family = out[current];
      std::string& place = is_help ? family.help : family.type;
      if (place.empty()) place = line;
      continue;
    }
    const auto sample = parse_sample(line);
    if (!sample) continue;
    std::string name(sample->name);
    if (const auto it = out.find(current);
        belongs(sample->name, current, it == out.end() ? "" : it->second.type)) {
      name = current;
    }
    if (except.contains(name) || except.contains(current)) continue;
    out[name].samples +=
        fmt::format("{}{{{}{}{}}}{}\n", sample->name, labels, sample->labels.empty() ? "" : ",",
                    sample->labels, sample->rest);
  }
}

/// The names that `text` has TYPE lines for.
std::set<std::string> family_names(std::string_view text) {
  std::set<std::string> out;
  constexpr std::string_view kType = "# TYPE ";
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with(kType)) {
      const std::string_view name = rest.substr(kType.size());
      out.emplace(name.substr(0, name_length(name)));
    }
    const size_t end = rest.find('\n');
    if (end == rest.npos) break;
    at += end + 1;
  }
  return out;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

}  // namespace

std::string merge_metrics(const std::string& own, const std::vector<EngineMetrics>& engines) {
  const std::set<std::string> own_names = family_names(own);
  std::string out = own;
  Families families;
  for (const EngineMetrics& engine : engines) {
    if (engine.text.empty()) {
      out += fmt::format("# engine {} is left out: {}\n", one_line(engine.id),
                         one_line(engine.error.empty() ? "no answer" : engine.error));
      continue;
    }
    add_text(engine.text,
             fmt::format(R"(engine="{}",role="{}")", escaped(engine.id), escaped(engine.role)),
             own_names, families);
  }
  for (const auto& [name, family] : families) {
    if (family.samples.empty()) continue;
    if (!family.help.empty()) out += family.help + '\n';
    if (!family.type.empty()) out += family.type + '\n';
    out += family.samples;
  }
  return out;
}

}  // namespace baton::router
