// The syntax tree of a template. Built once by the parser, then only read (by many threads).
// Internal to src/jinja.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/registry.h"
#include "jinja/value.h"

namespace baton::jinja {

using NameId = int32_t;  ///< index into Ast::names

/// Names with a meaning of their own, interned first.
enum : NameId { kLoopName, kCallerName, kVarargsName, kKwargsName, kFirstFreeName };

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,       ///< children: key, value, key, value, …
  kAttribute,  ///< children[0].text
  kItem,       ///< children[0][children[1]]
  kSlice,      ///< children: object, start, stop, step; an absent bound is null
  kCall,       ///< children[0] is called
  kFilter,     ///< children[0] is the input; null in a filter block
  kTest,       ///< children[0] is the input
  kNot,
  kNegate,
  kPlus,
  kBinary,  ///< op of children[0], children[1]
  kAnd,
  kOr,
  kCompare,      ///< children: first, then one operand for each of compare_ops
  kConcat,       ///< ~ of all children
  kConditional,  ///< children: condition, then, else (may be null)
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind = ExprKind::kConst;
  Op op = Op::kAdd;
  int line = 0;
  int depth = 1;  ///< of the tree below, bounded so that recursion over it is
  NameId name = -1;
  std::string text;  ///< attribute, filter or test name
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<Op> compare_ops;
  FilterFunction filter = nullptr;  ///< null if the filter is unknown: an error only when reached
  TestFunction test = nullptr;
  // Arguments of a call, filter or test.
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named_args;
  ExprPtr star_args;       ///< *args
  ExprPtr star_star_args;  ///< **kwargs
};

/// What is assigned to: a name, names in a tuple (nested), or an attribute of a namespace.
struct Target {
  NameId name = -1;
  std::string attribute;  ///< set: namespace `name`.attribute
  std::vector<Target> parts;
  bool is_tuple = false;
};

enum class StmtKind : uint8_t {
  kText,
  kOutput,
  kIf,   ///< exprs and bodies by branch; one body more than exprs = else
  kFor,  ///< exprs: iterable, condition (may be null); bodies: body, else
  kSet,
  kSetBlock,  ///< exprs[0]: filters over the body (may be null)
  kMacro,
  kCallBlock,  ///< exprs[0]: the call; the body is its caller()
  kFilterBlock,
  kWith,   ///< targets = exprs
  kScope,  ///< a body with a scope of its own (generation, block)
  kBreak,
  kContinue,
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
  NameId name = -1;
  ExprPtr default_value;  ///< may be null
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  bool recursive = false;      ///< of a for
  bool takes_varargs = false;  ///< a macro whose body reads varargs: extra arguments are allowed
  bool takes_kwargs = false;
  std::string text;  ///< template text; name of a macro
  NameId name = -1;  ///< of a macro
  std::vector<Target> targets;
  std::vector<Parameter> parameters;
  std::vector<ExprPtr> exprs;
  std::vector<Block> bodies;
};

struct Ast {
  std::vector<std::string> names;
  std::unordered_map<std::string, NameId> name_ids;
  Block body;
  /// Names that the top level assigns before it first reads them: undefined until then, whatever
  /// the caller passes (a macro may read them earlier).
  std::vector<NameId> assigned_first;
};

}  // namespace baton::jinja
