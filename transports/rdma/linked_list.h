// A list whose links are in its members: taking part in it needs no memory, and whoever is in it
// can leave without a search.
#pragma once

namespace hixld::rdma {

// What members inherit. Not copied, and not destroyed while in a list.
class Linked {
 public:
  Linked() = default;
  Linked(const Linked&) = delete;
  Linked& operator=(const Linked&) = delete;

 private:
  template <typename>
  friend class LinkedList;
  Linked* before_ = nullptr;
  Linked* after_ = nullptr;
};

template <typename T>
class LinkedList {
 public:
  LinkedList() { ends_.before_ = ends_.after_ = &ends_; }

  bool empty() const { return ends_.after_ == &ends_; }
  T* front() { return static_cast<T*>(ends_.after_); }
  // `member` is in no list.
  void push_back(T* member) {
    Linked* const link = member;
    link->before_ = ends_.before_;
    link->after_ = &ends_;
    ends_.before_->after_ = link;
    ends_.before_ = link;
  }
  // `member` is in this one.
  static void remove(T* member) {
    Linked* const link = member;
    link->before_->after_ = link->after_;
    link->after_->before_ = link->before_;
    link->before_ = link->after_ = nullptr;
  }

 private:
  Linked ends_;
};

}  // namespace hixld::rdma
