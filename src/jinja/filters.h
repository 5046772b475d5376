// The filters by family, and what they share. Internal to src/jinja.
#pragma once

#include <string>
#include <string_view>

#include "jinja/arguments.h"
#include "jinja/interpreter.h"
#include "jinja/registry.h"

namespace baton::jinja {

/// Null if the family has no such filter.
[[nodiscard]] FilterFunction find_text_filter(std::string_view name);      // filters_text.cc
[[nodiscard]] FilterFunction find_number_filter(std::string_view name);    // filters_number.cc
[[nodiscard]] FilterFunction find_sequence_filter(std::string_view name);  // filters_sequence.cc
[[nodiscard]] FilterFunction find_select_filter(std::string_view name);    // filters_select.cc

/// Follows a path like "a.b.0" from an item, as the `attribute` arguments of filters do. A null or
/// None path gives the item; `otherwise`, if not null, replaces undefined values.
[[nodiscard]] Eval<Value> attribute_path(Interpreter& interpreter, const Value& item,
                                         const Value* path, const Value* otherwise = nullptr);
/// A string in lower case, anything else as it is.
[[nodiscard]] Value ignore_case(Interpreter& interpreter, const Value& value);
/// str.title of a filter: words begin after white space and -({[<.
[[nodiscard]] std::string title_words(std::string_view text);
/// `text` filled up to `width` code points.
struct Padding {
  int64_t width = 0;
  char align = '<';  ///< < left, > right, ^ centre
  std::string fill = " ";
};
[[nodiscard]] Eval<std::string> pad(Interpreter& interpreter, std::string_view text,
                                    const Padding& padding);
/// Replaces up to `count` occurrences of `from` (all if negative).
struct Replacement {
  std::string_view from;
  std::string_view to;
  int64_t count = -1;
};
[[nodiscard]] Eval<std::string> replace_text(Interpreter& interpreter, std::string_view text,
                                             const Replacement& replacement);
/// Lines as str.splitlines gives them.
[[nodiscard]] std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace baton::jinja
