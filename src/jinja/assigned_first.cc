// Which names the top level of a template assigns before it first reads them.
//
// jinja2 decides where a name of the top level comes from at compile time: if its first use there
// is an assignment, the caller's variable of that name is never seen, also not by a macro or loop
// that reads it before the assignment runs. Source: FrameSymbolVisitor in jinja2/idtracking.py.
#include <cstddef>
#include <vector>

#include "jinja/parser.h"

namespace baton::jinja {
namespace {

class FirstUse {
 public:
  explicit FirstUse(size_t n_names) : seen_(n_names, false) {}

  void visit(const Block& block) {
    for (const auto& stmt : block) visit(*stmt);
  }

  [[nodiscard]] std::vector<NameId> assigned_first() const { return names_; }

 private:
  void visit(const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::kIf:
        visit_if(stmt);
        return;
      case StmtKind::kMacro:
        note(stmt.name, true);
        return;
      // The rest of a loop has a scope of its own.
      case StmtKind::kFor:
        visit(*stmt.exprs[0]);
        return;
      case StmtKind::kSetBlock:
        store(stmt.targets[0]);
        return;
      default:
        break;
    }
    for (const ExprPtr& expr : stmt.exprs) {
      if (expr != nullptr) visit(*expr);
    }
    if (stmt.kind == StmtKind::kSet) store(stmt.targets[0]);
  }

  // A name that a branch assigns comes from the caller otherwise.
  void visit_if(const Stmt& stmt) {
    for (size_t i = 0; i < stmt.bodies.size(); ++i) {
      if (i < stmt.exprs.size()) visit(*stmt.exprs[i]);
      ++n_conditions_;
      visit(stmt.bodies[i]);
      --n_conditions_;
    }
  }

  void store(const Target& target) {
    if (target.is_tuple) {
      for (const Target& part : target.parts) store(part);
    } else if (!target.attribute.empty()) {
      note(target.name, false);
    } else {
      note(target.name, true);
    }
  }

  void note(NameId name, bool is_store) {
    const auto at = static_cast<size_t>(name);
    if (seen_[at]) return;
    seen_[at] = true;
    if (is_store && n_conditions_ == 0) names_.push_back(name);
  }

  void visit(const Expr& expr) {
    if (expr.kind == ExprKind::kName) note(expr.name, false);
    const auto visit_child = [this](const ExprPtr& child) {
      if (child != nullptr) visit(*child);
    };
    for (const ExprPtr& child : expr.children) visit_child(child);
    for (const ExprPtr& child : expr.args) visit_child(child);
    for (const auto& named : expr.named_args) visit_child(named.second);
    visit_child(expr.star_args);
    visit_child(expr.star_star_args);
  }

  std::vector<bool> seen_;  ///< [names]
  std::vector<NameId> names_;
  int n_conditions_ = 0;  ///< ifs around the current place
};

}  // namespace

std::vector<NameId> find_assigned_first(const Ast& ast) {
  FirstUse first_use(ast.names.size());
  first_use.visit(ast.body);
  return first_use.assigned_first();
}

}  // namespace baton::jinja
