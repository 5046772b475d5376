// Which names the top level of a template assigns before it first reads them.
//
// jinja2 decides where a name of the top level comes from at compile time: if its first use there
// is an assignment, the caller's variable of that name is never seen, also not by a macro or loop
// that reads it before the assignment runs. Source: FrameSymbolVisitor in jinja2/idtracking.py.
#include <cstddef>
#include <map>

#include "jinja/parser.h"

namespace baton::jinja {
namespace {

class FirstUse {
 public:
  explicit FirstUse(size_t n_names) : seen_(n_names, false) {}

  void visit(const Block& block) {
    for (const auto& stmt : block) visit(*stmt);
  }

  [[nodiscard]] std::vector<NameId> assigned_first() const {
    std::vector<NameId> names;
    for (const Use& use : uses_) {
      if (use.is_store) names.push_back(use.name);
    }
    return names;
  }

 private:
  struct Use {
    NameId name;
    bool is_store;
  };

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

  // Names that only some branches assign come from the caller otherwise. jinja2 counts three
  // branches: the body, all elifs together, and else.
  void visit_if(const Stmt& stmt) {
    visit(*stmt.exprs[0]);
    std::vector<Use> branches[3];
    const size_t begin = uses_.size();
    visit(stmt.bodies[0]);
    branches[0] = take_back(begin);
    for (size_t i = 1; i < stmt.exprs.size(); ++i) {
      visit(*stmt.exprs[i]);
      visit(stmt.bodies[i]);
    }
    branches[1] = take_back(begin);
    if (stmt.bodies.size() > stmt.exprs.size()) visit(stmt.bodies.back());
    branches[2] = take_back(begin);

    std::map<NameId, int> n_stores;
    for (const auto& branch : branches) {
      for (const Use& use : branch) n_stores[use.name] += use.is_store ? 1 : 0;
    }
    for (const auto& [name, n] : n_stores) note(name, n == 3);
  }

  /// Forgets the first uses from `begin` on and returns them.
  std::vector<Use> take_back(size_t begin) {
    const auto first = uses_.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<Use> taken(first, uses_.end());
    uses_.erase(first, uses_.end());
    for (const Use& use : taken) seen_[static_cast<size_t>(use.name)] = false;
    return taken;
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
    uses_.push_back({name, is_store});
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
  std::vector<Use> uses_;   ///< the first of each name, in order
};

}  // namespace

std::vector<NameId> find_assigned_first(const Ast& ast) {
  FirstUse first_use(ast.names.size());
  first_use.visit(ast.body);
  return first_use.assigned_first();
}

}  // namespace baton::jinja
