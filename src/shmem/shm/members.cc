#include "shmem/shm/members.h"

#include <algorithm>

namespace baton::shmem {

std::shared_ptr<const Member> MemberTable::find_locked(int pe) const {
  for (const auto& member : members_) {
    const int index = pe - member->hello.first_pe;
    if (index >= 0 && index < member->hello.shape.n_pes) return member;
  }
  return nullptr;
}

std::shared_ptr<const Member> MemberTable::find(Pe pe) const {
  const std::lock_guard lock(mutex_);
  return find_locked(pe.value);
}

std::vector<std::shared_ptr<const Member>> MemberTable::all() const {
  const std::lock_guard lock(mutex_);
  return members_;
}

void MemberTable::add(std::shared_ptr<const Member> member) {
  const std::lock_guard lock(mutex_);
  members_.push_back(std::move(member));
}

void MemberTable::remove(const std::shared_ptr<const Member>& member) {
  const std::lock_guard lock(mutex_);
  std::erase(members_, member);
}

std::string MemberTable::missing(std::span<const Hello> but_for) const {
  const auto holds = [](const Hello& hello, int pe) {
    return pe >= hello.first_pe && pe < hello.first_pe + hello.shape.n_pes;
  };
  const std::lock_guard lock(mutex_);
  const auto is_missing = [&](int pe) {
    return !find_locked(pe) && std::none_of(but_for.begin(), but_for.end(),
                                            [&](const Hello& h) { return holds(h, pe); });
  };
  std::string text;
  for (int pe = 0; pe < npes_;) {
    int end = pe;
    while (end < npes_ && is_missing(end)) ++end;
    if (end > pe) text += (text.empty() ? "" : ", ") + pe_range(pe, end - pe);
    pe = std::max(end, pe + 1);
  }
  return text;
}

}  // namespace baton::shmem
