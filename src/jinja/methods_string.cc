// Python's str methods: searching, cutting and joining. Classification and case: methods_case.cc.
#include <algorithm>
#include <unordered_map>

#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/unicode.h"

namespace baton::jinja {
namespace {

Eval<Value> strip_sides(Interpreter& interpreter, const Value& self, CallArgs& args, bool left,
                        bool right) {
  JINJA_TRY(const BoundArgs bound, bind("strip", args, {"chars"}));
  JINJA_TRY(const std::string_view chars, bound.text(0, ""));
  const std::string_view* const set = bound.given(0) ? &chars : nullptr;
  std::string_view text = self.text();
  interpreter.meter().spend_bytes(text.size() * (chars.size() + 1) / 8);
  if (left) text = strip_left(text, set);
  if (right) text = strip_right(text, set);
  if (text.size() == self.text().size()) return self;
  return interpreter.string(std::string(text));
}

Eval<Value> strip(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return strip_sides(interpreter, self, args, true, true);
}
Eval<Value> lstrip(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return strip_sides(interpreter, self, args, true, false);
}
Eval<Value> rstrip(Interpreter& interpreter, const Value& self, CallArgs& args) {
  return strip_sides(interpreter, self, args, false, true);
}

/// The part of `text` between the optional code point indices start and stop of Python; nothing if
/// start is beyond the end. `skipped` counts the bytes before it.
Eval<std::optional<std::string_view>> window(std::string_view text, const BoundArgs& bound,
                                             size_t first, size_t& skipped) {
  skipped = 0;
  if (!bound.given(first) && !bound.given(first + 1)) return std::optional(text);
  const auto n = static_cast<int64_t>(count_points(text));
  JINJA_TRY(int64_t start, bound.integer(first, 0));
  JINJA_TRY(int64_t stop, bound.integer(first + 1, n));
  if (start < 0) start = start < -n ? 0 : start + n;
  if (stop < 0) stop = stop < -n ? 0 : stop + n;
  stop = std::min(stop, n);
  if (start > stop || start > n) return std::optional<std::string_view>();
  skipped = byte_offset(text, static_cast<size_t>(start));
  const std::string_view rest = text.substr(skipped);
  return std::optional(rest.substr(0, byte_offset(rest, static_cast<size_t>(stop - start))));
}

Eval<Value> has_affix(const Value& self, CallArgs& args, bool at_end) {
  JINJA_TRY(const BoundArgs bound,
            bind(at_end ? "endswith" : "startswith", args, {"affix", "start", "end"}, 1));
  size_t skipped = 0;
  JINJA_TRY(const auto part, window(self.text(), bound, 1, skipped));
  const auto matches = [&](const Value& affix) {
    const std::string& wanted = affix.text();
    if (!part || wanted.size() > part->size()) return false;
    return part->substr(at_end ? part->size() - wanted.size() : 0, wanted.size()) == wanted;
  };
  if (bound[0]->is_undefined()) return raise("{}", bound[0]->as_undefined()->hint);
  if (bound[0]->is_string()) return Value(matches(*bound[0]));
  if (!bound[0]->is_list(ListKind::kTuple)) {
    return raise("{} first arg must be str or a tuple of str, not {}",
                 at_end ? "endswith" : "startswith", type_name(*bound[0]));
  }
  for (const Value& affix : bound[0]->as_list()->items) {
    if (!affix.is_string()) return raise("a tuple of str is expected");
    if (matches(affix)) return Value(true);
  }
  return Value(false);
}

Eval<Value> starts_with(Interpreter&, const Value& self, CallArgs& args) {
  return has_affix(self, args, false);
}
Eval<Value> ends_with(Interpreter&, const Value& self, CallArgs& args) {
  return has_affix(self, args, true);
}

/// Code point index of a substring, or -1.
Eval<int64_t> find_substring(const Value& self, CallArgs& args, bool from_right) {
  JINJA_TRY(const BoundArgs bound, bind("find", args, {"sub", "start", "end"}, 1));
  JINJA_TRY(const std::string_view wanted, bound.text(0, ""));
  if (!bound.given(0)) return raise("must be str, not NoneType");
  size_t skipped = 0;
  JINJA_TRY(const auto part, window(self.text(), bound, 1, skipped));
  if (!part) return int64_t{-1};
  const size_t at = from_right ? part->rfind(wanted) : part->find(wanted);
  if (at == std::string_view::npos) return int64_t{-1};
  return static_cast<int64_t>(count_points(std::string_view(self.text()).substr(0, skipped + at)));
}

template <bool kFromRight, bool kMustExist>
Eval<Value> find(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_TRY(const int64_t at, find_substring(self, args, kFromRight));
  if (kMustExist && at < 0) return raise("substring not found");
  return Value(at);
}

Eval<Value> count(Interpreter&, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("count", args, {"sub", "start", "end"}, 1));
  JINJA_TRY(const std::string_view wanted, bound.text(0, ""));
  size_t skipped = 0;
  JINJA_TRY(const auto part, window(self.text(), bound, 1, skipped));
  if (!part) return Value(int64_t{0});
  if (wanted.empty()) return Value(static_cast<int64_t>(count_points(*part)) + 1);
  int64_t n = 0;
  for (size_t at = part->find(wanted); at != std::string_view::npos;
       at = part->find(wanted, at + wanted.size()))
    ++n;
  return Value(n);
}

Eval<Value> replace(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("replace", args, {"old", "new", "count"}, 2));
  for (size_t i = 0; i < 2; ++i) {
    if (bound[i]->is_none()) return raise("replace() argument {} must be str, not NoneType", i + 1);
  }
  JINJA_TRY(const std::string_view from, bound.text(0, ""));
  JINJA_TRY(const std::string_view to, bound.text(1, ""));
  JINJA_TRY(const int64_t n, bound.integer(2, -1));
  JINJA_TRY(std::string replaced, replace_text(interpreter, self.text(), {from, to, n}));
  return interpreter.string(std::move(replaced));
}

using Parts = std::vector<std::string_view>;

Parts split_at_space(std::string_view text, int64_t limit) {
  Parts parts;
  text = strip_left(text, nullptr);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    for (size_t byte = 0; byte < text.size(); end = byte) {
      if (is_space(next_point(text, byte))) break;
    }
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end), nullptr);
  }
  return parts;
}

Parts split_at_space_from_right(std::string_view text, int64_t limit) {
  Parts parts;
  text = strip_right(text, nullptr);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t at = begin - 1;
      while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
      size_t next = at;
      if (is_space(next_point(text, next))) break;
      begin = at;
    }
    parts.push_back(text.substr(begin));
    text = strip_right(text.substr(0, begin), nullptr);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts split_at(std::string_view text, std::string_view separator, int64_t limit) {
  Parts parts;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.find(separator, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

Parts split_at_from_right(std::string_view text, std::string_view separator, int64_t limit) {
  Parts parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Eval<Value> list_of(Interpreter& interpreter, const Parts& parts, ListKind kind = ListKind::kList) {
  JINJA_CHECK(interpreter.check_size(parts.size(), sizeof(Value) + sizeof(String)));
  JINJA_CHECK(interpreter.spend(static_cast<int64_t>(parts.size() / 8)));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(interpreter.string(std::string(part)));
  return interpreter.list(std::move(items), kind);
}

template <bool kFromRight>
Eval<Value> split(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("split", args, {"sep", "maxsplit"}));
  JINJA_TRY(const std::string_view separator, bound.text(0, ""));
  JINJA_TRY(const int64_t limit, bound.integer(1, -1));
  const std::string& text = self.text();
  if (!bound.given(0)) {
    return list_of(interpreter, kFromRight ? split_at_space_from_right(text, limit)
                                           : split_at_space(text, limit));
  }
  if (separator.empty()) return raise("empty separator");
  return list_of(interpreter, kFromRight ? split_at_from_right(text, separator, limit)
                                         : split_at(text, separator, limit));
}

template <bool kFromRight>
Eval<Value> partition(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("partition", args, {"sep"}, 1));
  JINJA_TRY(const std::string_view separator, bound.text(0, ""));
  if (separator.empty()) return raise("empty separator");
  const std::string_view text = self.text();
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  Parts parts = {text, "", ""};
  if (at != std::string_view::npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (kFromRight) {
    parts = {"", "", text};
  }
  return list_of(interpreter, parts, ListKind::kTuple);
}

Eval<Value> split_into_lines(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("splitlines", args, {"keepends"}));
  return list_of(interpreter, split_lines(self.text(), bound.flag(0)));
}

Eval<Value> join(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("join", args, {"iterable"}, 1));
  JINJA_TRY(const std::vector<Value> items, interpreter.iterate(*bound[0]));
  std::string joined;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return raise("sequence item {}: expected str instance, {} found", i, type_name(items[i]));
    }
    JINJA_CHECK(
        interpreter.check_size(joined.size() + self.text().size() + items[i].text().size(), 1));
    if (i > 0) joined += self.text();
    joined += items[i].text();
  }
  return interpreter.string(std::move(joined));
}

template <bool kPrefix>
Eval<Value> remove_affix(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound,
            bind(kPrefix ? "removeprefix" : "removesuffix", args, {"affix"}, 1));
  JINJA_TRY(const std::string_view affix, bound.text(0, ""));
  const std::string_view text = self.text();
  if (affix.size() > text.size()) return self;
  const size_t at = kPrefix ? 0 : text.size() - affix.size();
  if (text.substr(at, affix.size()) != affix) return self;
  return interpreter.string(std::string(kPrefix ? text.substr(affix.size()) : text.substr(0, at)));
}

template <char kAlign>
Eval<Value> justify(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("justify", args, {"width", "fillchar"}, 1));
  JINJA_TRY(const int64_t width, bound.integer(0, 0));
  JINJA_TRY(const std::string_view fill, bound.text(1, " "));
  if (count_points(fill) != 1)
    return raise("the fill character must be exactly one character long");
  JINJA_TRY(std::string padded, pad(interpreter, self.text(), {width, kAlign, std::string(fill)}));
  return interpreter.string(std::move(padded));
}

Eval<Value> zero_fill(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("zfill", args, {"width"}, 1));
  JINJA_TRY(const int64_t width, bound.integer(0, 0));
  const std::string& text = self.text();
  const bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  JINJA_TRY(std::string padded,
            pad(interpreter, text.substr(has_sign ? 1 : 0),
                {has_sign ? std::max<int64_t>(width, 1) - 1 : width, '>', "0"}));
  return interpreter.string(has_sign ? text[0] + padded : padded);
}

Eval<Value> expand_tabs(Interpreter& interpreter, const Value& self, CallArgs& args) {
  JINJA_TRY(const BoundArgs bound, bind("expandtabs", args, {"tabsize"}));
  JINJA_TRY(const int64_t size, bound.integer(0, 8));
  std::string out;
  int64_t column = 0;
  const std::string& text = self.text();
  for (size_t byte = 0; byte < text.size();) {
    const size_t begin = byte;
    const char32_t point = next_point(text, byte);
    if (point == '\t') {
      const int64_t n = size > 0 ? size - column % size : 0;
      JINJA_CHECK(interpreter.check_size(out.size() + static_cast<size_t>(n), 1));
      out.append(static_cast<size_t>(n), ' ');
      column += n;
    } else {
      out += text.substr(begin, byte - begin);
      column = point == '\n' || point == '\r' ? 0 : column + 1;
    }
  }
  return interpreter.string(std::move(out));
}

}  // namespace

MethodFunction find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> kMethods = {
      {"strip", strip},
      {"lstrip", lstrip},
      {"rstrip", rstrip},
      {"startswith", starts_with},
      {"endswith", ends_with},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count},
      {"replace", replace},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"splitlines", split_into_lines},
      {"join", join},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"center", justify<'^'>},
      {"ljust", justify<'<'>},
      {"rjust", justify<'>'>},
      {"zfill", zero_fill},
      {"expandtabs", expand_tabs},
      {"format", format_method},
  };
  const auto it = kMethods.find(name);
  return it != kMethods.end() ? it->second : find_case_method(name);
}

}  // namespace baton::jinja
